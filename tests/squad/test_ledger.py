"""The ledger of an execution, the activity log, and the records on disk."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from actors.errors import Conflict, NotFound
from actors.journal.ring import Frame
from actors.squad import events as names
from actors.squad.activity import KEPT, ActivityFiles, activity_path
from actors.squad.events import ALL, SquadEvent
from actors.squad.history import keep_record, read_history, report, write_report
from actors.squad.ledger import Caps, Ledger, ledger_path, read_page
from actors.squad.values import HistoryRecord, HistoryTask, TokenUsage
from tests.squad.kit import Team, open_engine, wait_phase
from tests.squad.test_control import SQUAD
from tests.squad.test_execution import CHAIN, store


def event(number: int, name: str = names.TASK_COMPLETED, **fields: str) -> SquadEvent:
    payload = {"squadId": "s", "executionId": "e", "taskId": f"t{number}", **fields}
    return SquadEvent(name, "s", payload, float(number))


def ledger(path: Path, caps: Caps | None = None) -> Ledger:
    found = Ledger(path, caps or Caps())
    found.resume()
    return found


def test_lines_are_numbered_from_one_and_go_on_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "l"
    ledger(path).append([event(1), event(2)])
    ledger(path).append([event(3)])
    page = read_page(path, "e")
    assert [(line.seq, line.task_id) for line in page.events] == [(1, "t1"), (2, "t2"), (3, "t3")]
    assert (page.last_seq, page.has_more, page.truncated) == (3, False, False)


def test_a_page_begins_after_a_number_and_may_hold_some_names_only(tmp_path: Path) -> None:
    path = tmp_path / "l"
    kinds = [names.TASK_COMPLETED, names.TASK_SKIPPED]
    ledger(path).append([event(n, kinds[n % 2]) for n in range(10)])
    assert [line.seq for line in read_page(path, "e", after=5).events] == [6, 7, 8, 9, 10]
    skipped = read_page(path, "e", types=[names.TASK_SKIPPED], limit=3)
    assert [line.seq for line in skipped.events] == [2, 4, 6]
    assert (skipped.has_more, skipped.last_seq) == (True, 10)
    assert read_page(path, "e", after=10).events == ()


@pytest.mark.parametrize(
    ("caps", "reason", "limit"),
    [(Caps(events=3), "event_limit", 3), (Caps(size=600), "byte_limit", 600)],
)
def test_a_full_ledger_ends_with_a_record_that_says_so(
    tmp_path: Path, caps: Caps, reason: str, limit: int
) -> None:
    path = tmp_path / "l"
    writing = ledger(path, caps)
    writing.append(event(n) for n in range(100))
    size = path.stat().st_size
    writing.append([event(200)])
    ledger(path, caps).append([event(201)])
    assert path.stat().st_size == size
    page = read_page(path, "e", limit=1000)
    assert [line.seq for line in page.events] == list(range(1, page.last_seq + 1))
    last = page.events[-1]
    assert (last.event, last.payload["reason"], last.payload["limit"]) == (
        names.LEDGER_TRUNCATED,
        reason,
        limit,
    )
    assert page.truncated
    filtered = read_page(path, "e", types=["squad:other"])
    assert [line.event for line in filtered.events] == [names.LEDGER_TRUNCATED]
    assert read_page(path, "e", after=last.seq, types=["squad:other"]).events == ()


@pytest.mark.parametrize("torn", [b'{"seq":3,"eve', b"\x00\xff garbage\n", b'{"seq":9,"event":"x"}\n'])
def test_what_a_crash_left_at_the_end_is_removed(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "l"
    ledger(path).append([event(1), event(2)])
    with path.open("ab") as file:
        file.write(torn)
    ledger(path).append([event(3)])
    assert [line.seq for line in read_page(path, "e").events] == [1, 2, 3]


async def test_the_cap_is_the_runtimes_setting(tmp_path: Path) -> None:
    team = Team(*CHAIN)
    async with open_engine(store(tmp_path), team.model, tmp_path, caps=Caps(events=5)) as engine:
        submitted = await engine.submit(SQUAD, "go", auto_approve=True)
        await wait_phase(engine, SQUAD, submitted.id, "completed")
        page = await engine.events(SQUAD, submitted.id)
    assert len(page.events) == 6
    assert page.truncated


async def test_a_disk_that_was_full_for_a_while_leaves_no_hole(tmp_path: Path) -> None:
    team = Team(*CHAIN)
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        submitted = await engine.submit(SQUAD, "go")
        await wait_phase(engine, SQUAD, submitted.id, "awaiting_approval")
        path = ledger_path(tmp_path, submitted.id)
        aside = tmp_path / "aside"
        path.rename(aside)
        path.mkdir()  # nothing can be written there now
        await engine.steer(SQUAD, submitted.id, "one")
        path.rmdir()
        aside.rename(path)
        await engine.steer(SQUAD, submitted.id, "two")
        page = await engine.events(SQUAD, submitted.id)
    assert [line.seq for line in page.events] == list(range(1, len(page.events) + 1))
    steered = [line.payload["message"] for line in page.events if line.event == names.EXECUTION_STEERED]
    assert steered == ["one", "two"]


async def test_every_line_names_its_execution_and_a_known_event(tmp_path: Path) -> None:
    team = Team(*CHAIN)
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        first = await engine.submit(SQUAD, "one", auto_approve=True)
        second = await engine.submit(SQUAD, "two", auto_approve=True)
        for each in (first, second):
            await wait_phase(engine, SQUAD, each.id, "completed")
            lines = (await engine.events(SQUAD, each.id, limit=1000)).events
            assert {line.execution_id for line in lines} == {each.id}
            assert all(line.event in ALL for line in lines)
            assert all(line.payload["taskId"] == line.task_id for line in lines if "taskId" in line.payload)


# --- activity -------------------------------------------------------------------------------------------------------


async def test_the_activity_log_is_empty_after_a_restart_and_loaded_from_its_file(tmp_path: Path) -> None:
    stored, team = store(tmp_path), Team(*CHAIN)
    async with open_engine(stored, team.model, tmp_path) as engine:
        submitted = await engine.submit(SQUAD, "go", auto_approve=True)
        await wait_phase(engine, SQUAD, submitted.id, "completed")
        entries = await engine.activity(SQUAD)
        loaded = await engine.load_activity(SQUAD)
        assert [each["eventType"] for each in loaded] == [entry.event_type for entry in entries]
        assert [each["id"] for each in loaded] == sorted(each["id"] for each in loaded)
    async with open_engine(stored, team.model, tmp_path) as engine:
        assert await engine.activity(SQUAD) == []
        assert await engine.load_activity(SQUAD) == loaded
        with pytest.raises(NotFound):
            await engine.load_activity("nobody")


async def test_the_activity_file_keeps_only_recent_events(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()

    async def workspace(_: str) -> Path:
        return tmp_path

    files = ActivityFiles(workspace)
    for number in range(1, KEPT * 2 + 1):
        files.note(Frame(number, 1.0, event(number)))
        if number % 700 == 0:
            await files.flush("s")
    loaded = await files.load("s")
    assert [each["id"] for each in loaded] == list(range(KEPT + 1, KEPT * 2 + 1))
    assert len(activity_path(tmp_path).read_bytes().splitlines()) == KEPT


async def test_activity_of_a_squad_whose_workspace_is_gone_does_not_stop_others(tmp_path: Path) -> None:
    (tmp_path / "b" / "logs").mkdir(parents=True)

    async def workspace(squad_id: str) -> Path:
        return tmp_path / squad_id

    files = ActivityFiles(workspace)
    files.note(Frame(1, 1.0, SquadEvent(names.UPDATED, "a", {}, 1.0)))
    files.note(Frame(2, 1.0, SquadEvent(names.UPDATED, "b", {}, 1.0)))
    await files.flush("a")
    assert [each["id"] for each in await files.load("b")] == [2]
    assert not (tmp_path / "a").exists()


# --- records --------------------------------------------------------------------------------------------------------

RECORD = HistoryRecord(
    execution_id="e1",
    squad_id="s",
    squad_name="Team | one",
    request="make\nit",
    plan_title="Plan for: make it",
    tasks=(
        HistoryTask(task_id="t1", title="a|b", agent_id="x", agent_name="Ann", status="done", output="fine"),
        HistoryTask(
            task_id="t2", title="c", agent_id="y", agent_name="Bob", status="failed", error="no luck"
        ),
    ),
    final_result="the end",
    total_token_usage=TokenUsage(prompt_tokens=10, completion_tokens=5),
    duration_ms=1500,
)


def test_a_record_is_kept_once_and_the_newest_comes_first(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    keep_record(tmp_path, RECORD)
    keep_record(tmp_path, msgspec.structs.replace(RECORD, execution_id="e2"))
    keep_record(tmp_path, RECORD)
    assert [record.execution_id for record in read_history(tmp_path)] == ["e1", "e2"]
    assert read_history(tmp_path)[0] == RECORD


@pytest.mark.parametrize("text", [b"", b"{", b"{}", b'[1, {"executionId": 3}]'])
def test_a_broken_history_is_read_as_far_as_it_goes(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "history.json").write_bytes(text)
    assert read_history(tmp_path) == []
    keep_record(tmp_path, RECORD)
    assert read_history(tmp_path) == [RECORD]


def test_the_report_has_its_sections_and_survives_odd_names() -> None:
    text = report(RECORD)
    for heading in ("## Summary", "## Tasks", "## Resource usage", "## Final result", "## Failed tasks"):
        assert heading in text
    assert "| a\\|b | Ann | done |" in text
    assert "| Request | make it |" in text
    assert "- c: no luck" in text
    assert "15 tokens" in text


async def test_a_report_is_a_file_on_the_server(tmp_path: Path) -> None:
    team = Team(*CHAIN)
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        submitted = await engine.submit(SQUAD, "go", auto_approve=True)
        with pytest.raises(NotFound):
            await engine.report(SQUAD, submitted.id)
        await wait_phase(engine, SQUAD, submitted.id, "completed")
        path = Path(await engine.report(SQUAD, submitted.id))
        assert path == tmp_path / "artifacts" / "reports" / f"{submitted.id}-report.md"
        assert "the whole answer" in path.read_text()
        (tmp_path / "artifacts" / "reports").rename(tmp_path / "moved")
        (tmp_path / "artifacts" / "reports").write_text("in the way")
        with pytest.raises(Conflict, match="cannot be written"):
            await engine.report(SQUAD, submitted.id)


def test_a_report_leaves_no_temporary_file(tmp_path: Path) -> None:
    path = write_report(tmp_path, RECORD)
    assert os.listdir(path.parent) == [path.name]  # noqa: PTH208 - names are what is asked


async def test_the_readable_log_is_filtered_by_agent_and_level(tmp_path: Path) -> None:
    team = Team(*CHAIN, work=lambda _, title: "ok" if title == "first" else RuntimeError(title))  # type: ignore[arg-type, return-value]
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        submitted = await engine.submit(SQUAD, "go", auto_approve=True)
        await wait_phase(engine, SQUAD, submitted.id, "completed", "failed")
        errors = await engine.logs(SQUAD, submitted.id, min_level="error")
        assert [line["level"] for line in errors] == ["error"]
        mine = await engine.logs(SQUAD, submitted.id, agent_id="a-ann")
        assert {line["agentId"] for line in mine} == {"a-ann"}
        last = await engine.logs(SQUAD, submitted.id, limit=1)
        assert last == (await engine.logs(SQUAD, submitted.id))[-1:]
        assert await engine.logs(SQUAD, submitted.id, limit=0) == []
