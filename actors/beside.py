"""What works for a session beside its runs: background agents, background jobs, and the prompts of commands.

Between the rooms that do the work and the session it belongs to; both are wired to it by the runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import trio

from actors.agent.background import TITLE, BackgroundAgents, BackgroundTask
from actors.agent.host import RunFacts
from actors.config.commands import Text, expand_command
from actors.kernel import ActorStopped, MailboxFull, Ref
from actors.session.approvals import Elsewhere
from actors.session.internal import Command, Elicit, KeepBackground, Recall
from actors.tools.builtin.background_jobs import BackgroundJobs
from actors.tools.jobs import Jobs
from actors.tools.options import BackgroundJobsOptions
from actors.tools.process import run_process, shell_program
from actors.tools.registry import Deps
from actors.tools.text import Excerpt
from actors.tools.tool import Elicitation, ElicitationReply, ToolError
from actors.tools.wrappers import Wrapper

COMMAND_SECONDS = 10.0
"""How long one shell command in a prompt may run."""


class Beside:
    """See the module.

    Args:
        session: Returns a session's actor.
        env: Environment of commands' shells.
    """

    def __init__(self, session: Callable[[str], Ref[Command]], env: Mapping[str, str]) -> None:
        self.elsewhere = Elsewhere()
        self._session = session
        self._env = env

    def store(self, task: BackgroundTask) -> None:
        """Keep an ended background agent's conversation in its session. Checkpoint: never."""
        facts = task.host.facts
        seconds = trio.current_time() - task.started_at
        keep = KeepBackground(facts.session_id, task.agent, TITLE, seconds, tuple(task.host.events))
        self._tell(facts.root, keep)

    async def ask(self, facts: RunFacts, agent: str, question: Elicitation) -> ElicitationReply:
        """Put a background agent's question to its session's person, and wait for the answer.

        Raises:
            NotFound: the session is gone.
        """
        asked = await self._session(facts.root).ask(Elicit(agent, facts.session_id, question))
        try:
            return await asked.wait()
        finally:
            self.elsewhere.discard(facts.root, asked.id)

    def recall(self, session_id: str, text: str) -> None:
        """Tell a session's agent that a background job ended. Checkpoint: never."""
        self._tell(session_id, Recall(text))

    async def expand(self, template: str, typed: str, directory: Path) -> str:
        """Return a command's prompt, with what the shell commands in it print.

        Cancellation: a shell that runs is ended.
        """
        parts: list[str] = []
        for piece in expand_command(template, typed):
            if isinstance(piece, Text):
                parts.append(piece.text)
                continue
            output = Excerpt()
            command = [shell_program(), "-c", piece.command, "sh", *piece.arguments]
            env = {**self._env, "ARGUMENTS": piece.typed}
            try:
                await run_process(
                    command, cwd=directory, env=env, seconds=COMMAND_SECONDS, on_output=output.feed
                )
            except ToolError as error:
                output.feed(error.message.encode())
            parts.append(output.text().strip())
        return "".join(parts)

    def _tell(self, session_id: str, message: KeepBackground | Recall) -> None:
        # A session that is deleted, or a runtime that closes, has no use for it any more.
        with suppress(MailboxFull, ActorStopped):
            self._session(session_id).tell(message)


def forgetter(agents: BackgroundAgents, jobs: Jobs) -> Callable[[Sequence[str]], None]:
    """Return what ends all background work of the sessions it is given."""

    def forget(sessions: Sequence[str]) -> None:
        for session in sessions:
            agents.stop_all(session)
            for job in jobs.of(session):
                job.scope.cancel()

    return forget


class SessionJobs(Wrapper):
    """The background jobs of a session: they go on when the run that started them ends."""

    async def aclose(self) -> None:
        """Leave the jobs running; the session's deletion or the runtime's end stops them."""
        await trio.lowlevel.checkpoint()


def session_jobs(options: BackgroundJobsOptions, deps: Deps) -> SessionJobs:
    """Build the toolset. ``deps`` has the runtime's jobs."""
    assert deps.jobs is not None, "a runtime has a place for jobs"
    return SessionJobs(BackgroundJobs(options, deps.jobs, deps.recall))
