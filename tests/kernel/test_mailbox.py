"""The mailbox alone: order, bounds, room and closing."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from trio.lowlevel import current_task, wait_task_rescheduled

from actors.kernel import ActorStopped, Address, Bounds, Mailbox, MailboxFull

ADDRESS = Address("box", "1")


def drain(mailbox: Mailbox) -> list[object]:
    items: list[object] = []
    while (item := mailbox.take()) is not None:
        items.append(item)
    return items


def test_k2_a_lane_keeps_the_order_of_its_sender() -> None:
    mailbox = Mailbox(ADDRESS, Bounds())
    for number in range(10):
        mailbox.put_nowait(("mail", number), False)
        mailbox.put_nowait(("control", number), True)
    assert drain(mailbox) == [("control", n) for n in range(10)] + [("mail", n) for n in range(10)]


def test_k3_control_overtakes_mail_and_signals_overtake_control() -> None:
    mailbox = Mailbox(ADDRESS, Bounds())
    mailbox.put_nowait("mail", False)
    mailbox.put_nowait("control", True)
    mailbox.signal("signal")
    assert drain(mailbox) == ["signal", "control", "mail"]


async def test_k3_control_overtakes_mail_that_woke_the_reader() -> None:
    mailbox = Mailbox(ADDRESS, Bounds())
    taken: list[object] = []

    async def read() -> None:
        await wait_task_rescheduled(mailbox.park(current_task()))
        taken.extend(drain(mailbox))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        for item in ("first", "second"):
            mailbox.put_nowait(item, False)
        mailbox.put_nowait("control", True)
    assert taken == ["control", "first", "second"]


@pytest.mark.parametrize(("urgent", "lane"), [(False, "mail"), (True, "control")])
def test_k5_a_full_lane_refuses_and_names_itself(urgent: bool, lane: str) -> None:
    mailbox = Mailbox(ADDRESS, Bounds(mail=2, control=2))
    mailbox.put_nowait(1, urgent)
    mailbox.put_nowait(2, urgent)
    with pytest.raises(MailboxFull, match=f"box/1 .*{lane}") as caught:
        mailbox.put_nowait(3, urgent)
    assert caught.value.retry_after > 0
    mailbox.put_nowait(3, not urgent)
    assert drain(mailbox) == ([1, 2, 3] if urgent else [3, 1, 2])


def test_k5_signals_and_own_messages_are_exempt_from_the_bound() -> None:
    mailbox = Mailbox(ADDRESS, Bounds(mail=1, control=1))
    mailbox.put_nowait("mail", False)
    mailbox.put_nowait("control", True)
    for number in range(100):
        assert mailbox.signal(number)
    mailbox.deliver("own", False)
    assert drain(mailbox) == [*range(100), "control", "mail", "own"]


def test_a_lane_without_room_for_anything_is_refused() -> None:
    with pytest.raises(ValueError, match="one message"):
        Bounds(mail=0)


async def test_k5_senders_waiting_for_room_are_served_in_turn_and_before_newcomers() -> None:
    mailbox = Mailbox(ADDRESS, Bounds(mail=1))
    mailbox.put_nowait(0, False)
    async with trio.open_nursery() as nursery:
        for number in (1, 2):
            nursery.start_soon(mailbox.put, number, False)
            await trio.testing.wait_all_tasks_blocked()
        assert mailbox.statistics().senders_waiting == 2
        assert mailbox.take() == 0
        with pytest.raises(MailboxFull):
            mailbox.put_nowait("newcomer", False)
        assert mailbox.statistics().mail == 1
        assert drain(mailbox) == [1, 2]


async def test_k7_a_cancelled_sender_has_put_nothing() -> None:
    mailbox = Mailbox(ADDRESS, Bounds(mail=1))
    mailbox.put_nowait(0, False)
    with trio.CancelScope() as scope:
        scope.cancel()
        await mailbox.put(1, False)
    assert scope.cancelled_caught
    assert drain(mailbox) == [0]
    assert mailbox.statistics().senders_waiting == 0


async def test_k9_a_closed_mailbox_accepts_nothing_and_returns_the_unread() -> None:
    mailbox = Mailbox(ADDRESS, Bounds(mail=1))
    mailbox.put_nowait("mail", False)
    mailbox.put_nowait("control", True)
    results: list[bool] = []

    async def wait_for_room() -> None:
        results.append(await mailbox.put("waiting", False))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_for_room)
        await trio.testing.wait_all_tasks_blocked()
        assert mailbox.close() == ["control", "mail"]
    assert results == [False]
    with pytest.raises(ActorStopped, match="box/1"):
        mailbox.put_nowait("late", False)
    mailbox.deliver("late", False)
    assert drain(mailbox) == []
    assert mailbox.close() == []


def test_k9_a_closed_mailbox_takes_signals_until_it_is_sealed() -> None:
    mailbox = Mailbox(ADDRESS, Bounds())
    mailbox.close()
    assert mailbox.signal("work ended")
    assert mailbox.take() == "work ended"
    assert mailbox.signal("unread")
    assert mailbox.seal() == ["unread"]
    assert not mailbox.signal("late")


async def test_k9_a_parked_reader_of_a_closed_mailbox_is_handed_no_mail() -> None:
    mailbox = Mailbox(ADDRESS, Bounds())

    async def read() -> None:
        await wait_task_rescheduled(mailbox.park(current_task()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        mailbox.close()
        assert not mailbox.offer("late", False)
        assert mailbox.is_parked
        mailbox.wake()
    assert mailbox.is_empty


async def test_k7_a_cancelled_reader_loses_nothing() -> None:
    mailbox = Mailbox(ADDRESS, Bounds())
    with trio.move_on_after(0):
        await wait_task_rescheduled(mailbox.park(current_task()))
    assert not mailbox.is_parked
    mailbox.put_nowait("mail", False)
    assert drain(mailbox) == ["mail"]


def test_statistics_count_what_waits() -> None:
    mailbox = Mailbox(ADDRESS, Bounds())
    mailbox.put_nowait(1, False)
    mailbox.put_nowait(2, True)
    mailbox.signal(3)
    statistics = mailbox.statistics()
    assert (statistics.mail, statistics.control, statistics.senders_waiting) == (1, 2, 0)
