"""``greenroom run``: one answer, or a chat, from a runtime inside this process."""

from __future__ import annotations

import base64
import mimetypes
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any, Protocol

import click
import trio
from msgspec import Struct
from rich.console import Console

from actors import Runtime, Session, open_runtime
from actors.config.remote import remote_source
from actors.errors import Invalid, NotFound
from actors.models.provider import Part
from actors.session.messages import Template
from gateway.cli.conversation import Conversation
from gateway.cli.discovery import recorded
from gateway.cli.display import Display, JsonDisplay, MarkdownDisplay, PlainDisplay
from gateway.cli.enter import enter, settings_for
from gateway.cli.models import models_for
from gateway.cli.person import TerminalPerson
from gateway.cli.remote import Remote, RemoteConversation, find_agent, find_session
from gateway.client import open_client
from gateway.control import control_plane
from gateway.listeners import Listener
from gateway.serve import Stop, serve, stop_on_signals

AGENT_SUFFIXES = (".yaml", ".yml", ".hcl")
OPEN_CONTROL = """\
WARNING: {address} can be reached from other machines, and a run's control plane asks for no credentials.
WARNING: whoever reaches it can have this agent do anything it may do here.
WARNING: listen on 127.0.0.1 or a Unix socket, or use `greenroom serve api` with a token.
"""
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
    listen: str | None = None
    exec: bool = False
    safety: str | None = None
    prompt_file: tuple[Path, ...] = ()
    attach: tuple[Path, ...] = ()
    dry_run: bool = False
    remote: str | None = None
    auth_token: str | None = None


def split(words: Sequence[str]) -> tuple[str | Path | None, str]:
    """Tell the agent from the message: the first word is one if it is a URL, or called like a file, or is a file.

    An OCI reference needs a tag or digest here, for ``and/or`` is a word like any other.

    Returns:
        A URL or reference, or a file, and the message.

    Raises:
        click.ClickException: it is called like a file and does not exist.
    """
    if not words:
        return None, ""
    first = Path(words[0]).expanduser()
    named_like_one = first.suffix in AGENT_SUFFIXES and not any(c.isspace() for c in words[0])
    is_url = words[0].startswith(("http://", "https://"))
    if (is_url or ("/" in words[0] and ":" in words[0])) and remote_source(words[0]) is not None:
        return words[0], " ".join(words[1:])
    if named_like_one and not first.exists():
        raise click.ClickException(f"no such agent file: {first}")
    if named_like_one or (len(words[0]) < 256 and first.is_file()):
        return first, " ".join(words[1:])
    return None, " ".join(words)


def run(**options: object) -> int:
    """Run the command and return its exit status."""
    given = RunOptions(**options)  # type: ignore[arg-type] # click made them from the same names
    agents, message = (None, "") if given.remote else split(given.words)
    if given.remote:
        refuse_local_options(given)
    if given.yolo and given.safety not in (None, "autonomous"):
        raise click.UsageError("--yolo and --safety contradict each other")
    message = "\n\n".join([*(path.read_text("utf-8").strip() for path in given.prompt_file), message]).strip()
    if given.remote:
        return enter(lambda: talk_remotely(given, message))
    if not message and not given.dry_run and (given.exec or not sys.stdin.isatty()) and not stays(given):
        message = sys.stdin.read().strip()
        if not message:
            raise click.UsageError("there is no message: give one as an argument or on standard input")
    return enter(lambda: talk(given, agents, message))


async def talk(options: RunOptions, agents: str | Path | None, message: str) -> int:
    """Answer ``message``, or chat when it is empty; return the exit status."""
    settings = settings_for(
        data_dir=options.data_dir, session_db=options.session_db, working_dir=options.working_dir
    )
    models = models_for(settings, fake=options.fake, record=options.record)
    async with AsyncExitStack() as stack:
        stop = await stack.enter_async_context(stop_on_signals()) if stays(options) else Stop()
        runtime = await stack.enter_async_context(open_runtime(settings, agents=agents, models=models))
        source = await runtime.agents.only("")
        if options.dry_run:
            print(f"{source}: {', '.join(await runtime.agents.names(source))}")
            return 0
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
        parts = tuple(image_part(path) for path in options.attach)
        if options.listen is not None:
            runtime.attach(session.id, source, options.agent or "")
            nursery = await stack.enter_async_context(trio.open_nursery())
            stack.callback(nursery.cancel_scope.cancel)
            await nursery.start(serve_beside, runtime, options, session.id)
            nursery.start_soon(conversation.watch)
        if person is not None and not message and not options.exec:
            await chat(conversation, person)
            return 0
        status = 0
        if message or parts:
            status = EXIT_BY_REASON.get(await conversation.say(message, parts), 0)
        if stays(options):
            await stop.wait()
        return status


def refuse_local_options(options: RunOptions) -> None:
    """Raise click.UsageError for an option that only means something for a run in this process."""
    local = {
        "--listen": options.listen,
        "--fake": options.fake,
        "--record": options.record,
        "--attach": options.attach,
        "--dry-run": options.dry_run,
        "--session-db": options.session_db,
    }
    if given := [name for name, value in local.items() if value]:
        raise click.UsageError(f"{given[0]} is for runs in this process, not for --remote")


async def talk_remotely(options: RunOptions, prompt: str) -> int:
    """Answer or chat as :func:`talk` does, by an agent of a server."""
    settings = settings_for(data_dir=options.data_dir, session_db=None)
    policy = "autonomous" if options.yolo else options.safety
    template: dict[str, Any] = {"safety_policy": policy} if policy else {}
    if options.working_dir:
        template["working_dir"] = str(options.working_dir.absolute())
    async with open_client(options.remote or "", options.auth_token or "") as client:
        agent, said = await find_agent(client, options.words)
        message = "\n\n".join(filter(None, (prompt, said)))
        console = Console(stderr=options.as_json or not sys.stdout.isatty())
        person: TerminalPerson | None = None
        if sys.stdin.isatty() and console.is_terminal:
            person = TerminalPerson.at_terminal(console, settings.data_dir)
        if not message and (options.exec or person is None):
            message = (await trio.to_thread.run_sync(sys.stdin.read)).strip()
            if not message:
                raise Invalid("there is no message: give one as an argument or on standard input")
        session = await find_session(client, options.session or "", template)
        remote = Remote(agent=agent, name=options.agent or "", session=session, model=options.model or "")
        display = None if options.as_json else display_for(session, console, as_json=False)
        conversation = RemoteConversation(client, remote, display, person)
        if not message and person is not None:
            await chat(conversation, person)
            return 0
        return EXIT_BY_REASON.get(await conversation.say(message), 0)


def stays(options: RunOptions) -> bool:
    """Tell whether the run goes on without a terminal, for those who drive it from outside, until a signal."""
    return options.listen is not None and not options.exec and not sys.stdin.isatty()


async def serve_beside(
    runtime: Runtime,
    options: RunOptions,
    session_id: str,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the control plane, with a record of the run, until cancelled."""
    assert options.listen is not None
    with ExitStack() as records:

        def announce(listener: Listener) -> None:
            if listener.bind == "network":
                sys.stderr.write(OPEN_CONTROL.format(address=listener.address))
            records.enter_context(
                recorded(
                    runtime.settings.data_dir,
                    listener.address,
                    session_id,
                    options.agent or "",
                    runtime.now(),
                )
            )
            print(f"Control plane listening on {listener.address}", file=sys.stderr, flush=True)
            task_status.started()

        await serve(control_plane(runtime), [options.listen], Stop(), announce=announce)


def image_part(path: Path) -> Part:
    """Return a file as a part of a message. Raises: click.UsageError, when it is no image."""
    kind, _ = mimetypes.guess_type(path.name)
    if kind is None or not kind.startswith("image/"):
        raise click.UsageError(f"--attach takes images, which {path} is not")
    return Part("image", data=base64.b64encode(path.read_bytes()).decode(), mime_type=kind, name=path.name)


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
    policy: Any = "autonomous" if options.yolo else options.safety or ""
    template = Template(safety_policy=policy)
    if wanted.startswith("-") and wanted[1:].isdigit():
        rows = await runtime.list_sessions(limit=1, offset=max(int(wanted[1:]), 1) - 1)
        if not rows:
            raise NotFound(f"there is no session {wanted}")
        wanted = rows[0].id
    elif not wanted or not await exists(runtime, wanted):
        return await runtime.create_session(agent_name=name, template=template, session_id=wanted)
    session = runtime.session(wanted, source, name)
    if policy:
        await session.set_safety(policy)
    return session


async def exists(runtime: Runtime, session_id: str) -> bool:
    """Tell whether there is a session of that id."""
    try:
        await runtime.require_session(session_id)
    except NotFound:
        return False
    return True


class Talk(Protocol):
    """A conversation, here or on a server."""

    async def say(self, text: str, /) -> str:
        """Have one message answered; return how the run ended."""
        ...

    async def cancel(self) -> None:
        """Cancel the run going on."""
        ...


async def chat(conversation: Talk, person: TerminalPerson) -> None:
    """Take lines until the person leaves. Ctrl-C cancels the answer being given."""
    while (line := await person.line()) is not None:
        if line.strip():
            await answer(conversation, line)


async def answer(conversation: Talk, line: str) -> None:
    """Answer one line; the first SIGINT cancels the run, a second one interrupts the program."""

    async def watch(signals: AsyncIterator[int]) -> None:
        async for _ in signals:
            await conversation.cancel()
            break
        async for _ in signals:
            raise KeyboardInterrupt

    with trio.open_signal_receiver(signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, signals)
            await conversation.say(line)
            nursery.cancel_scope.cancel()
