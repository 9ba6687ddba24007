"""Background jobs: command lines that outlive the call that started them, but not the runtime or their session."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import trio

from actors.errors import NotFound, Overloaded
from actors.tools.process import run_process, shell_command
from actors.tools.text import Excerpt
from actors.tools.tool import ToolError

logger = logging.getLogger("actors.tools")

Status = Literal["running", "completed", "failed", "stopped"]

MAX_RUNNING = 20
"""Jobs of one session that run at the same time."""

_KEPT = 100
_STOP_SECONDS = 5.0


class Job:
    """One job. ``status`` changes once, when it ends."""

    def __init__(self, number: int, owner: str, command: str) -> None:
        self.id = f"job_{number}"
        self.owner = owner
        self.command = command
        self.status: Status = "running"
        self.exit_code: int | None = None
        self.started_at = trio.current_time()
        self.ended_at = math.inf
        self.ended = trio.Event()
        self.scope = trio.CancelScope()
        self._excerpt = Excerpt()

    def feed(self, data: bytes) -> None:
        """Take output."""
        self._excerpt.feed(data)

    def note(self, text: str) -> None:
        """Add a line of our own to the output."""
        self._excerpt.feed(text.encode())

    def output(self) -> str:
        """Return the output so far, bounded."""
        return self._excerpt.text()

    def seconds(self) -> float:
        """Return how long it has run."""
        return min(self.ended_at, trio.current_time()) - self.started_at


class Jobs:
    """All background jobs of a runtime; made by :func:`open_jobs`."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._jobs: dict[str, Job] = {}
        self._next = 1

    def start(
        self,
        owner: str,
        command: str,
        *,
        cwd: Path,
        env: Mapping[str, str],
        on_end: Callable[[Job], None] | None = None,
    ) -> Job:
        """Start a command line and return at once.

        Args:
            owner: The session it belongs to.
            command: The command line.
            cwd: Its working directory.
            env: Its whole environment.
            on_end: Called in the trio thread when it ended by itself; must not block.

        Raises:
            Overloaded: the owner has too many running jobs.
        """
        running = sum(job.status == "running" for job in self.of(owner))
        if running >= MAX_RUNNING:
            raise Overloaded(f"{running} background jobs are running already; stop one first")
        job = Job(self._next, owner, command)
        self._next += 1
        self._jobs[job.id] = job
        self._forget_old()
        self._nursery.start_soon(self._run, job, cwd, dict(env), on_end, name=job.id)
        return job

    def of(self, owner: str) -> list[Job]:
        """Return an owner's jobs, oldest first."""
        return [job for job in self._jobs.values() if job.owner == owner]

    def get(self, owner: str, job_id: str) -> Job:
        """Return one of an owner's jobs. Raises: NotFound, also for another owner's job."""
        job = self._jobs.get(job_id)
        if job is None or job.owner != owner:
            raise NotFound(f"there is no background job '{job_id}'", job_id=job_id)
        return job

    async def stop(self, job: Job) -> None:
        """End a job and wait until its processes are gone; nothing happens if it has ended.

        Cancellation: the job is ended all the same.
        """
        if job.status == "running":
            job.scope.cancel()
        await job.ended.wait()

    async def stop_all(self, owner: str) -> None:
        """End an owner's jobs and forget them; for the end of a session."""
        for job in self.of(owner):
            job.scope.cancel()
        # Shielded so that closing a session in a cancelled scope still waits for its processes, but not for ever.
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _STOP_SECONDS):
            for job in self.of(owner):
                await job.ended.wait()
        self._jobs = {job.id: job for job in self._jobs.values() if job.owner != owner}

    async def _run(
        self, job: Job, cwd: Path, env: dict[str, str], on_end: Callable[[Job], None] | None
    ) -> None:
        status: Status = "stopped"
        try:
            with job.scope:
                try:
                    result = await run_process(
                        shell_command(job.command), cwd=cwd, env=env, seconds=math.inf, on_output=job.feed
                    )
                    job.exit_code = result.code
                    status = "failed" if result.code else "completed"
                except ToolError as error:
                    job.note(error.message)
                    status = "failed"
        finally:
            job.status = status
            job.ended_at = trio.current_time()
            job.ended.set()
        if on_end is not None and status != "stopped":
            try:
                on_end(job)
            except Exception:
                logger.exception(
                    "background job listener failed", extra={"job": job.id, "session_id": job.owner}
                )

    def _forget_old(self) -> None:
        ended = [job for job in self._jobs.values() if job.status != "running"]
        for job in ended[: max(len(ended) - _KEPT, 0)]:
            del self._jobs[job.id]


@asynccontextmanager
async def open_jobs() -> AsyncGenerator[Jobs]:
    """Open the place where background jobs run; at the end all are stopped and their processes gone."""
    async with trio.open_nursery() as nursery:
        yield Jobs(nursery)
        nursery.cancel_scope.cancel()
