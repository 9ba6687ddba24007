"""The ``background_jobs`` toolset: start, watch and stop command lines that go on running."""

# ruff: noqa: D417 - docstrings of tools are written for models, who do not see the context

from __future__ import annotations

from collections.abc import Callable

import trio

from actors.tools.builtin.shell import base_environment, command_directory, describe_exit
from actors.tools.builtin.toolset import DESTRUCTIVE, WRITES, Builtin
from actors.tools.expand import expand_all
from actors.tools.jobs import Job, Jobs
from actors.tools.options import BackgroundJobsOptions
from actors.tools.tool import ToolContext, ToolError, ToolResult

Recall = Callable[[str, str], None]
"""Called with a session id and a message for its agent."""

MAX_WAIT_SECONDS = 600
_RECALL_CHARS = 4000


class BackgroundJobs(Builtin):
    """Tools over the runtime's jobs, of which an agent sees those of its session."""

    name = "background_jobs"
    text = "Use background jobs for servers, watchers and long builds; look at their output with view_background_job."

    def __init__(self, options: BackgroundJobsOptions, jobs: Jobs, recall: Recall | None = None) -> None:
        super().__init__()
        self._options = options
        self._jobs = jobs
        self._recall = recall
        self._owners: set[str] = set()
        self.offer(self.run_background_job, DESTRUCTIVE)
        self.offer(self.list_background_jobs)
        self.offer(self.view_background_job)
        self.offer(self.wait_background_job, rename={"seconds": "timeout"})
        self.offer(self.stop_background_job, WRITES)

    async def run_background_job(
        self, cmd: str, context: ToolContext, cwd: str = ".", recall: bool | None = None
    ) -> ToolResult:
        """Start a command line in the background and return its job id at once.

        Args:
            cmd: The command line.
            cwd: Directory to run it in, relative to the working directory.
            recall: Whether to be told when the job ends.
        """
        if not cmd.strip():
            raise ToolError("the command is empty")
        wanted = self._options.recall if recall is None else recall
        if recall and self._recall is None:
            raise ToolError("recall is not available here; use wait_background_job")
        self._owners.add(context.session_id)
        job = self._jobs.start(
            context.session_id,
            cmd,
            cwd=command_directory(context.working_dir, cwd),
            env={**base_environment(context), **expand_all(self._options.env, context)},
            on_end=self._tell if wanted else None,
        )
        return ToolResult(f"Started background job {job.id}.", meta={"job_id": job.id})

    async def list_background_jobs(self, context: ToolContext) -> str:
        """List the background jobs of this session."""
        jobs = self._jobs.of(context.session_id)
        return (
            "\n".join(f"{_headline(job)}: {job.command}" for job in jobs) or "There are no background jobs."
        )

    async def view_background_job(self, job_id: str, context: ToolContext) -> str:
        """Return a job's status and its output so far.

        Args:
            job_id: The job's id.
        """
        return _report(self._jobs.get(context.session_id, job_id))

    async def wait_background_job(self, job_id: str, context: ToolContext, seconds: float = 60) -> str:
        """Wait for a job to end and return its status and output.

        Args:
            job_id: The job's id.
            seconds: How many seconds to wait at most; the job goes on running.
        """
        job = self._jobs.get(context.session_id, job_id)
        with trio.move_on_after(min(max(seconds, 0), MAX_WAIT_SECONDS)):
            await job.ended.wait()
        return _report(job)

    async def stop_background_job(self, job_id: str, context: ToolContext) -> str:
        """Stop a job and everything it started.

        Args:
            job_id: The job's id.
        """
        job = self._jobs.get(context.session_id, job_id)
        await self._jobs.stop(job)
        return _report(job)

    async def aclose(self) -> None:
        """Stop the jobs of every session that used this toolset."""
        for owner in self._owners:
            await self._jobs.stop_all(owner)
        self._owners.clear()

    def _tell(self, job: Job) -> None:
        if self._recall is not None:
            output = job.output()[-_RECALL_CHARS:]
            self._recall(job.owner, f"Background job {_headline(job)}: {job.command}\nOutput:\n{output}")


def _headline(job: Job) -> str:
    code = f", {describe_exit(job.exit_code)}" if job.exit_code else ""
    return f"{job.id} ({job.status}{code}, {job.seconds():.0f} s)"


def _report(job: Job) -> str:
    return f"{_headline(job)}\nCommand: {job.command}\nOutput:\n{job.output() or '(none)'}"
