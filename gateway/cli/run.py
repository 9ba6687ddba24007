"""``greenroom run``: one answer, or a chat, from a runtime inside this process."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import click
import trio
from msgspec import Struct
from rich.console import Console

from actors import Runtime, Session, open_runtime
from actors.errors import NotFound
from actors.session.messages import Template
from gateway.cli.conversation import Conversation
from gateway.cli.display import Display, JsonDisplay, MarkdownDisplay, PlainDisplay
from gateway.cli.enter import enter, settings_for
from gateway.cli.models import models_for
from gateway.cli.person import TerminalPerson

AGENT_SUFFIXES = (".yaml", ".yml", ".hcl")
EXIT_BY_REASON = {"error": 1, "interrupted": 1, "budget_exceeded": 1, "loop_detected": 1, "canceled": 130}


class RunOptions(Struct, frozen=True, kw_only=True):
    """What was asked for; see ``greenroom run --help``."""

    words: tuple[str, ...]
    agent: str | None
    model: str | None
    yolo: bool
    session: str | None
    as_json: bool
    working_dir: Path | None
    session_db: str | None
    data_dir: Path | None
    fake: str | None = None
    record: str | None = None


def split(words: Sequence[str]) -> tuple[Path | None, str]:
    """Tell the agent file from the message: the first word is a file if it is called like one or is one.

    Raises:
        click.ClickException: it is called like one and does not exist.
    """
    if not words:
        return None, ""
    first = Path(words[0]).expanduser()
    named_like_one = first.suffix in AGENT_SUFFIXES and not any(c.isspace() for c in words[0])
    if named_like_one and not first.exists():
        raise click.ClickException(f"no such agent file: {first}")
    if named_like_one or (len(words[0]) < 256 and first.is_file()):
        return first, " ".join(words[1:])
    return None, " ".join(words)


def run(**options: object) -> int:
    """Run the command and return its exit status."""
    given = RunOptions(**options)  # type: ignore[arg-type] # click made them from the same names
    file, message = split(given.words)
    if not message and not sys.stdin.isatty():
        message = sys.stdin.read().strip()
        if not message:
            raise click.UsageError("there is no message: give one as an argument or on standard input")
    return enter(lambda: talk(given, file, message))


async def talk(options: RunOptions, file: Path | None, message: str) -> int:
    """Answer ``message``, or chat when it is empty; return the exit status."""
    settings = settings_for(
        data_dir=options.data_dir, session_db=options.session_db, working_dir=options.working_dir
    )
    models = models_for(settings, fake=options.fake, record=options.record)
    async with open_runtime(settings, agents=file, models=models) as runtime:
        source = await runtime.agents.only("")
        session = await open_session(runtime, options, source)
        console = Console(stderr=options.as_json or not sys.stdout.isatty())
        person: TerminalPerson | None = None
        if sys.stdin.isatty() and console.is_terminal:
            person = TerminalPerson.at_terminal(console, settings.data_dir)
        conversation = Conversation(
            session,
            display_for(session.id, console, as_json=options.as_json),
            person,
            source=source,
            agent=options.agent or "",
            model=options.model or "",
        )
        if not message and person is not None:
            await chat(conversation, person)
            return 0
        return EXIT_BY_REASON.get(await conversation.say(message), 0)


def display_for(session_id: str, console: Console, *, as_json: bool) -> Display:
    """Return how events are shown: JSON if asked for, Markdown on a terminal, else plain text."""
    if as_json:
        return JsonDisplay(session_id)
    return MarkdownDisplay(console) if sys.stdout.isatty() else PlainDisplay()


async def open_session(runtime: Runtime, options: RunOptions, source: str) -> Session:
    """Create a session, or find the one that is to go on.

    Raises:
        NotFound: there are not that many sessions to count back.
    """
    wanted, name = options.session or "", options.agent or ""
    template = Template(safety_policy="autonomous" if options.yolo else "")
    if wanted.startswith("-") and wanted[1:].isdigit():
        rows = await runtime.list_sessions(limit=1, offset=max(int(wanted[1:]), 1) - 1)
        if not rows:
            raise NotFound(f"there is no session {wanted}")
        wanted = rows[0].id
    elif not wanted or not await exists(runtime, wanted):
        return await runtime.create_session(agent_name=name, template=template, session_id=wanted)
    session = runtime.session(wanted, source, name)
    if options.yolo:
        await session.set_safety("autonomous")
    return session


async def exists(runtime: Runtime, session_id: str) -> bool:
    """Tell whether there is a session of that id."""
    try:
        await runtime.require_session(session_id)
    except NotFound:
        return False
    return True


async def chat(conversation: Conversation, person: TerminalPerson) -> None:
    """Take lines until the person leaves. Ctrl-C cancels the answer being given."""
    while (line := await person.line()) is not None:
        if line.strip():
            await answer(conversation, line)


async def answer(conversation: Conversation, line: str) -> None:
    """Answer one line; the first SIGINT cancels the run, a second one interrupts the program."""

    async def watch(signals: AsyncIterator[int]) -> None:
        async for _ in signals:
            await conversation.session.cancel("interrupted by the user")
            break
        async for _ in signals:
            raise KeyboardInterrupt

    with trio.open_signal_receiver(signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, signals)
            await conversation.say(line)
            nursery.cancel_scope.cancel()
