"""The mailbox against a model of two lists: order (K2, K3), bounds (K5), and nothing lost or accepted late (K9)."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from actors.kernel import ActorStopped, Address, Bounds, Mailbox, MailboxFull

BOUNDS = Bounds(mail=3, control=2)


class MailboxMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.mailbox = Mailbox(Address("box", "1"), BOUNDS)
        self.signals: list[object] = []
        self.control: list[object] = []
        self.mail: list[object] = []
        self.number = 0
        self.closed = False
        self.sealed = False

    def next_item(self) -> int:
        self.number += 1
        return self.number

    @rule(urgent=st.booleans())
    def put(self, urgent: bool) -> None:
        item = self.next_item()
        lane, bound = (self.control, BOUNDS.control) if urgent else (self.mail, BOUNDS.mail)
        try:
            self.mailbox.put_nowait(item, urgent)
        except ActorStopped:
            assert self.closed
        except MailboxFull:
            assert not self.closed
            assert len(lane) >= bound
        else:
            assert not self.closed
            assert len(lane) < bound
            lane.append(item)

    @rule(urgent=st.booleans())
    def deliver(self, urgent: bool) -> None:
        item = self.next_item()
        self.mailbox.deliver(item, urgent)
        if not self.closed:
            (self.control if urgent else self.mail).append(item)

    @rule()
    def signal(self) -> None:
        item = self.next_item()
        assert self.mailbox.signal(item) is not self.sealed
        if not self.sealed:
            self.signals.append(item)

    @rule()
    def take(self) -> None:
        for lane in (self.signals, self.control, self.mail):
            if lane:
                assert self.mailbox.take() == lane.pop(0)
                return
        assert self.mailbox.take() is None

    @precondition(lambda self: self.number > 5)
    @rule()
    def close(self) -> None:
        assert self.mailbox.close() == [*self.control, *self.mail]
        self.control, self.mail, self.closed = [], [], True

    @precondition(lambda self: self.closed)
    @rule()
    def seal(self) -> None:
        assert self.mailbox.seal() == self.signals
        self.signals, self.sealed = [], True

    @invariant()
    def counts_agree(self) -> None:
        statistics = self.mailbox.statistics()
        assert statistics.mail == len(self.mail)
        assert statistics.control == len(self.control) + len(self.signals)
        assert self.mailbox.is_empty is not bool(self.mail or self.control or self.signals)


MailboxMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestMailbox = MailboxMachine.TestCase
