"""Background jobs: they outlive their call, tell of their end, and never outlive the runtime."""

# ruff: noqa: ASYNC110 - looking at a small file blocks nobody in a test

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from actors.errors import Overloaded
from actors.tools.jobs import MAX_RUNNING, Jobs, open_jobs
from actors.tools.registry import Deps
from tests.tools.kit import build, call, context_in

ENV = {"PATH": "/usr/bin:/bin"}


def gone(pid: int) -> bool:
    """Tell whether a process has ended (a zombie counts)."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True


async def wait_for(path: Path) -> str:
    """Wait for a file that a job writes."""
    with trio.fail_after(10):
        while not path.exists() or not path.read_text():
            await trio.sleep(0.01)
    return path.read_text()


async def test_job_outlives_its_call_and_is_watched(tmp_path: Path) -> None:
    context = context_in(tmp_path)
    async with open_jobs() as jobs:
        toolset = build("background_jobs", Deps(jobs=jobs), env={"WORD": "hello"})
        started = await call(
            toolset, "run_background_job", context, cmd="echo $WORD; cat gate; exit 3", cwd="."
        )
        assert started.output == "Started background job job_1."
        ended = await call(toolset, "wait_background_job", context, job_id="job_1", timeout=10)
        assert ended.output.startswith("job_1 (failed, exit status 3, ")
        assert "hello" in ended.output
        assert "job_1 (failed" in (await call(toolset, "list_background_jobs", context)).output
        assert (await call(toolset, "view_background_job", context, job_id="job_9")).is_error
        stranger = context_in(tmp_path, session_id="other")
        assert (await call(toolset, "view_background_job", stranger, job_id="job_1")).is_error
        assert "no background jobs" in (await call(toolset, "list_background_jobs", stranger)).output


async def test_stopped_job_leaves_no_process(tmp_path: Path) -> None:
    context = context_in(tmp_path)
    async with open_jobs() as jobs:
        toolset = build("background_jobs", Deps(jobs=jobs))
        await call(toolset, "run_background_job", context, cmd="sleep 300 & echo $! > pid; wait")
        pid = int(await wait_for(tmp_path / "pid"))
        waited = await call(toolset, "wait_background_job", context, job_id="job_1", timeout=0)
        assert "job_1 (running" in waited.output
        assert (
            "job_1 (stopped" in (await call(toolset, "stop_background_job", context, job_id="job_1")).output
        )
        assert gone(pid)
        assert (
            "job_1 (stopped" in (await call(toolset, "stop_background_job", context, job_id="job_1")).output
        )


async def test_closing_the_toolset_or_the_runtime_ends_jobs(tmp_path: Path) -> None:
    context = context_in(tmp_path)
    async with open_jobs() as jobs:
        toolset = build("background_jobs", Deps(jobs=jobs))
        await call(toolset, "run_background_job", context, cmd="echo $$ > one; sleep 300")
        other = jobs.start("other", "echo $$ > two; sleep 300", cwd=tmp_path, env=ENV)
        one, two = int(await wait_for(tmp_path / "one")), int(await wait_for(tmp_path / "two"))
        await toolset.aclose()
        assert gone(one)
        assert not jobs.of("s-1")
        assert other.status == "running"
        assert not gone(two)
    assert gone(two)


async def test_end_is_told_when_asked_for(tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []
    async with open_jobs() as jobs:
        deps = Deps(jobs=jobs, recall=lambda session, text: told.append((session, text)))
        toolset, context = build("background_jobs", deps, recall=True), context_in(tmp_path)
        await call(toolset, "run_background_job", context, cmd="echo done")
        await call(toolset, "wait_background_job", context, job_id="job_1")
        await call(toolset, "run_background_job", context, cmd="echo quiet", recall=False)
        await call(toolset, "wait_background_job", context, job_id="job_2")
        await call(toolset, "run_background_job", context, cmd="sleep 300")
        await call(toolset, "stop_background_job", context, job_id="job_3")
        await trio.testing.wait_all_tasks_blocked()
    assert len(told) == 1
    assert told[0][0] == "s-1"
    assert "job_1 (completed" in told[0][1]
    assert "done" in told[0][1]


async def test_recall_without_a_listener_is_refused(tmp_path: Path) -> None:
    async with open_jobs() as jobs:
        toolset = build("background_jobs", Deps(jobs=jobs))
        assert (
            await call(toolset, "run_background_job", context_in(tmp_path), cmd="ls", recall=True)
        ).is_error


async def test_jobs_that_cannot_start_and_listeners_that_fail_hurt_nobody(tmp_path: Path) -> None:
    def fail(_: object) -> None:
        raise ValueError("listener")

    async with open_jobs() as jobs:
        bad = jobs.start("s", "a\0b", cwd=tmp_path, env=ENV, on_end=fail)
        await bad.ended.wait()
        assert bad.status == "failed"
        assert "cannot start" in bad.output()
        good = jobs.start("s", "true", cwd=tmp_path, env=ENV)
        await good.ended.wait()
        assert good.status == "completed"


async def test_number_of_jobs_is_bounded(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        jobs = Jobs(nursery)
        for _ in range(MAX_RUNNING):
            jobs.start("s", "sleep 300", cwd=tmp_path, env=ENV)
        with pytest.raises(Overloaded):
            jobs.start("s", "sleep 300", cwd=tmp_path, env=ENV)
        jobs.start("t", "sleep 300", cwd=tmp_path, env=ENV)
        nursery.cancel_scope.cancel()
