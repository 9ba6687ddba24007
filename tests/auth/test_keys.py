"""Access keys: what is stored of them, who recognises them, and for how long."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from actors.auth import keys as module
from actors.auth.keys import Keys
from actors.auth.logins import IDLE_SECONDS, MAX_LOGINS, Logins
from actors.auth.messages import ScopeName
from actors.auth.queries import STREAM, KeyRows
from actors.errors import Invalid, NotFound
from actors.journal.log import EventLog
from actors.journal.memory import open_memory
from actors.journal.sqlite import open_sqlite


@asynccontextmanager
async def open_keys() -> AsyncGenerator[tuple[Keys, EventLog]]:
    async with open_memory() as log:
        log.register(KeyRows())
        yield Keys(log, lambda: 1000.0), log


async def test_a_key_is_recognised_by_its_text_and_by_nothing_else() -> None:
    async with open_keys() as (keys, _):
        issued = await keys.issue("ci", ["agent_write", "agent_read", "agent_read"])
        assert issued.key.scopes == ("agent_read", "agent_write")
        assert await keys.recognise(issued.text) == issued.key
        for wrong in ("", issued.text[:-1], issued.text + "x", issued.key.id, "\udcff"):
            assert await keys.recognise(wrong) is None


async def test_the_text_of_a_key_is_stored_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with open_sqlite(path) as log:
        log.register(KeyRows())
        issued = await Keys(log, lambda: 1.0).issue("ci", ["admin"])
    for file in tmp_path.iterdir():
        assert issued.text.encode() not in file.read_bytes()
        assert issued.text.removeprefix("grk_").encode() not in file.read_bytes()


async def test_keys_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with open_sqlite(path) as log:
        log.register(KeyRows())
        kept = await Keys(log, lambda: 1.0).issue("kept", ["agent_read"])
        gone = await Keys(log, lambda: 2.0).issue("gone", ["agent_read"])
        await Keys(log, lambda: 3.0).revoke(gone.key.id)
    async with open_sqlite(path) as log:
        log.register(KeyRows())
        keys = Keys(log, lambda: 4.0)
        assert await keys.list() == [kept.key]
        assert await keys.recognise(kept.text) == kept.key
        assert await keys.recognise(gone.text) is None


async def test_a_revoked_key_is_refused_at_once_although_it_was_just_used() -> None:
    async with open_keys() as (keys, _):
        issued = await keys.issue("ci", ["agent_read"])
        assert await keys.recognise(issued.text)
        await keys.revoke(issued.key.id)
        assert await keys.recognise(issued.text) is None
        with pytest.raises(NotFound):
            await keys.revoke(issued.key.id)


async def test_another_process_s_revocation_counts_within_a_second(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_keys() as (keys, log):
        issued = await keys.issue("ci", ["agent_read"])
        assert await keys.recognise(issued.text)
        await Keys(log, lambda: 2.0).revoke(issued.key.id)
        assert await keys.recognise(issued.text), "believed for a moment"
        await trio.sleep(module.REMEMBERED_SECONDS)
        assert await keys.recognise(issued.text) is None


async def test_two_processes_that_issue_at_once_both_succeed() -> None:
    scopes: list[ScopeName] = ["agent_read"]
    async with open_keys() as (keys, log):
        other = Keys(log, lambda: 1.0)
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(keys.issue, f"a{number}", scopes)
                nursery.start_soon(other.issue, f"b{number}", scopes)
        assert len(await keys.list()) == 10
        assert (await log.head(STREAM)).seq == 10


async def test_only_admin_implies_other_scopes() -> None:
    scopes: tuple[ScopeName, ...] = ("agent_read", "agent_write", "admin")
    async with open_keys() as (keys, _):
        grants = {scope: (await keys.issue("k", [scope])).key.grants for scope in scopes}
    assert grants["agent_read"] == {"agent_read"}
    assert grants["agent_write"] == {"agent_write"}
    assert grants["admin"] == {"agent_read", "agent_write", "admin"}


@pytest.mark.parametrize(("name", "scopes"), [(" ", ["admin"]), ("x" * 201, ["admin"]), ("ok", [])])
async def test_a_key_needs_a_name_and_a_scope(name: str, scopes: list[ScopeName]) -> None:
    async with open_keys() as (keys, log):
        with pytest.raises(Invalid):
            await keys.issue(name, scopes)
        assert (await log.head(STREAM)).seq == 0


def test_a_login_ends_when_it_is_closed_or_unused_for_long() -> None:
    now = [0.0]
    logins = Logins(lambda: now[0])
    closed, idle, used = (logins.open(bytes([number])) for number in range(3))
    logins.close(closed)
    assert logins.credential(closed) is None
    now[0] = IDLE_SECONDS
    assert logins.credential(used) == b"\2"
    now[0] += 1
    assert logins.credential(idle) is None
    assert logins.credential(used) == b"\2"


def test_logins_are_bounded_and_the_one_unused_for_longest_goes_first() -> None:
    logins = Logins(lambda: 0.0)
    first, second = logins.open(b"1"), logins.open(b"2")
    logins.credential(first)
    for _ in range(MAX_LOGINS - 1):
        logins.open(b"x")
    assert len(logins) == MAX_LOGINS
    assert logins.credential(second) is None
    assert logins.credential(first) == b"1"
