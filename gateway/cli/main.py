"""The ``greenroom`` command: its options and sub-commands, and what happens to their failures.

Nothing heavy is imported here, so that ``--help``, ``--version`` and usage errors answer at once; each
command imports its own file when it runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
EXIT_INTERRUPTED = 130


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Keep a logging option wherever it was given: before or after the command's name."""
    given = context.find_root().meta.setdefault("greenroom.logging", {})
    if value and parameter.name:
        given[parameter.name] = value
    return value


def logging_options(command: F) -> F:
    """Add the options that every command takes."""
    options = (
        click.option(
            "-d", "--debug", is_flag=True, expose_value=False, callback=_remember, help="Log everything."
        ),
        click.option(
            "--log-file",
            type=click.Path(dir_okay=False, path_type=Path),
            expose_value=False,
            callback=_remember,
            help="Append the log to this file instead of standard error.",
        ),
        click.option(
            "--log-format",
            type=click.Choice(["text", "json"]),
            expose_value=False,
            callback=_remember,
            help="How log records are written.  [default: text]",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def data_options(command: F) -> F:
    """Add the options that say where things are kept."""
    data = click.option(
        "--data-dir",
        type=click.Path(file_okay=False, path_type=Path),
        envvar="GREENROOM_DATA_DIR",
        help="Directory for model weights and everything else kept.  [default: ~/.greenroom]",
    )
    return data(command)


def database_option(default: str) -> Callable[[F], F]:
    """Return the option for the sessions' database."""
    return click.option(
        "-s",
        "--session-db",
        metavar="FILE",
        help=f"Database of the sessions.  [default: {default}]",
    )


def cassette_options(command: F) -> F:
    """Add the options for recorded model calls."""
    fake = click.option("--fake", metavar="FILE", help="Answer model calls from a recording.")
    record = click.option("--record", metavar="FILE", help="Record model calls to a new file.")
    return fake(record(command))


class Seconds(click.ParamType[float]):
    """A duration such as ``90s`` or ``1h30m``, in seconds; greater than nothing."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        from actors.config.duration import parse_duration

        try:
            seconds = parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if seconds <= 0:
            self.fail(f"{value} is not longer than nothing", param, ctx)
        return seconds


def start_logging(level: str) -> None:
    """Set up logging as the options of this invocation say."""
    from gateway.cli.logs import configure

    given: dict[str, Any] = click.get_current_context().find_root().meta.get("greenroom.logging", {})
    configure(
        "DEBUG" if given.get("debug") else level,
        file=given.get("log_file"),
        json=given.get("log_format") == "json",
    )


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="greenroom", prog_name="greenroom", message="%(prog)s %(version)s")
@logging_options
def greenroom() -> None:
    """Run, talk to and serve LLM agents."""


@greenroom.group()
def serve() -> None:
    """Serve agents to programs."""


@serve.command("api", short_help="Serve the HTTP API.")
@click.argument("agents", metavar="FILE|DIR|URL|REFERENCE")
@click.option(
    "-l",
    "--listen",
    "listen",
    default="127.0.0.1:8080",
    show_default=True,
    metavar="ADDRESS",
    help="host:port (port 0: a free one), unix://PATH or fd://N.",
)
@database_option("session.db")
@data_options
@click.option(
    "--auth-token", envvar="GREENROOM_AUTH_TOKEN", metavar="TOKEN", help="Bearer token clients must send."
)
@click.option("--no-auth", is_flag=True, help="Serve other machines without a token, deliberately.")
@click.option("--require-auth", is_flag=True, help="Ask for a credential on loopback addresses, too.")
@click.option(
    "--master-key",
    envvar="GREENROOM_MASTER_KEY",
    metavar="KEY",
    help="Credential that grants everything, for issuing access keys; other machines must send one then.",
)
@click.option(
    "--hide-page",
    "hidden_pages",
    multiple=True,
    type=click.Choice(["/squad"]),
    help="Refuse a page's routes and tools.",
)
@click.option(
    "--max-request-size",
    type=int,
    default=1_048_576,
    show_default=True,
    metavar="BYTES",
    help="Largest body.",
)
@click.option("--session-workingdir-root", metavar="DIR", help="Sessions may only work below this directory.")
@click.option(
    "--pull-interval",
    type=click.IntRange(min=0),
    default=0,
    metavar="MINUTES",
    help="How often to pull agents from a URL or registry; files on disk are reread as they change.",
)
@click.option(
    "--default-model", envvar="GREENROOM_DEFAULT_MODEL", metavar="PROVIDER/MODEL", help="For `auto` agents."
)
@click.option(
    "--on-disconnect",
    type=click.Choice(["cancel", "continue"]),
    default="cancel",
    show_default=True,
    help="What a client that leaves its run's stream does to the run.",
)
@click.option(
    "--allow-private-tools",
    is_flag=True,
    help="Let API tools reach private networks and this machine.",
)
@click.option(
    "--allow-tool-host",
    multiple=True,
    metavar="HOST",
    help="A private network, address, host or host:port that API tools may reach; repeatable.",
)
@cassette_options
@logging_options
def serve_api(**options: Any) -> None:
    """Serve the agents of FILE, or of every agent file in DIR, over HTTP.

    A URL, or an OCI reference such as org/name:tag, is pulled. An address that other machines can reach asks for a
    token; without one given, one is made and printed.

    Prints `Listening on ADDRESS` once it listens.
    """
    start_logging("INFO")
    from gateway.cli.serve import serve_api as command

    command(**options)


@serve.command("chat", short_help="Serve agents as models, OpenAI-compatible.")
@click.argument("agents", metavar="FILE|DIR|URL|REFERENCE")
@click.option("-a", "--agent", metavar="NAME", help="Offer only this agent.  [default: all]")
@click.option(
    "-l",
    "--listen",
    "listen",
    default="127.0.0.1:8083",
    show_default=True,
    metavar="ADDRESS",
    help="host:port (port 0: a free one), unix://PATH or fd://N.",
)
@click.option(
    "--cors-origin", multiple=True, metavar="ORIGIN", help="Pages of this origin may call; * for all pages."
)
@click.option("--api-key", envvar="GREENROOM_API_KEY", metavar="KEY", help="Key clients must send.")
@click.option("--api-key-env", metavar="NAME", help="Variable that holds the key clients must send.")
@click.option("--no-auth", is_flag=True, help="Serve other machines without a key, deliberately.")
@click.option("--yolo", is_flag=True, help="Run every tool call without asking; otherwise those are refused.")
@click.option(
    "--max-request-size",
    type=int,
    default=1_048_576,
    show_default=True,
    metavar="BYTES",
    help="Largest body.",
)
@click.option(
    "--request-timeout", type=Seconds(), default="5m", show_default=True, help="How long an answer may take."
)
@click.option(
    "--conversations-max",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="How many conversations with an X-Conversation-Id to keep.",
)
@click.option(
    "--conversation-ttl",
    type=Seconds(),
    default="30m",
    show_default=True,
    help="How long to keep one unused.",
)
@click.option(
    "--pull-interval",
    type=click.IntRange(min=0),
    default=0,
    metavar="MINUTES",
    help="How often to pull agents from a URL or registry; files on disk are reread as they change.",
)
@click.option(
    "--working-dir", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Where tools work."
)
@cassette_options
@data_options
@logging_options
def serve_chat(**options: Any) -> None:
    """Serve agents as models at /v1/chat/completions and /v1/models, for clients that speak OpenAI's API.

    A model's name is the agent's. Conversations are kept in memory. Prints `Listening on ADDRESS` once it listens.
    """
    start_logging("INFO")
    from gateway.cli.chat import serve_chat as command

    command(**options)


@serve.command("copilot", short_help="Serve the official Copilot SDKs.")
@click.argument("agents", required=False, metavar="[FILE|DIR|URL|REFERENCE]")
@click.option(
    "-a", "--agent", metavar="ID", help="Which agent source new sessions use.  [default: the only one]"
)
@click.option(
    "-l", "--listen", metavar="HOST:PORT", help="Where to listen.  [default: a free port of --host]"
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen, with --port.")
@click.option("--port", type=click.IntRange(0, 65535), help="Where to listen; 0 for a free one.")
@click.option("--stdio", is_flag=True, help="Serve one client at standard input and output.")
@click.option(
    "--connection-token",
    envvar="COPILOT_CONNECTION_TOKEN",
    metavar="TOKEN",
    help="Token clients must send with their first request.",
)
@click.option("--no-auth", is_flag=True, help="Serve other machines without a token, deliberately.")
@click.option(
    "--default-model", envvar="GREENROOM_DEFAULT_MODEL", metavar="PROVIDER/MODEL", help="For `auto` agents."
)
@click.option(
    "--working-dir", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Where tools work."
)
@click.option("--headless", is_flag=True, expose_value=False, help="As SDKs ask for; there is no other way.")
@click.option("--no-auto-update", is_flag=True, expose_value=False, help="As SDKs ask for; nothing updates.")
@click.option("--no-auto-login", is_flag=True, expose_value=False, help="As SDKs ask for; nobody logs in.")
@click.option(
    "--log-level", metavar="LEVEL", help="As SDKs name it: none, error, warning, info, debug or all."
)
@click.option(
    "--auth-token-env", metavar="NAME", expose_value=False, help="As SDKs ask for; not needed here."
)
@click.option(
    "--session-idle-timeout",
    metavar="SECONDS",
    expose_value=False,
    help="As SDKs ask for; idle sessions give their memory back by themselves.",
)
@cassette_options
@database_option("session.db in the data directory")
@data_options
@logging_options
def serve_copilot(log_level: str | None, **options: Any) -> None:
    """Serve the agents of FILE, or of every agent file in DIR, to programs written with a Copilot SDK.

    Without FILE a built-in assistant answers. Programs connect to the printed address, or start this command
    themselves with --stdio.
    """
    levels = {"none": "CRITICAL", "error": "ERROR", "info": "INFO", "debug": "DEBUG", "all": "DEBUG"}
    start_logging(levels.get(log_level or "", "WARNING"))
    from gateway.cli.copilot import serve_copilot as command

    command(**options)


@greenroom.command(short_help="Talk to an agent.")
@click.argument("words", nargs=-1, metavar="[FILE] [MESSAGE]...")
@click.option(
    "-a", "--agent", metavar="NAME", help="Which agent of the file.  [default: root, else the first]"
)
@click.option("--model", metavar="PROVIDER/MODEL", help="Model to answer with.")
@click.option("--yolo", is_flag=True, help="Run every tool call without asking.")
@click.option("--session", metavar="ID", help="Continue this session; -1 is the latest. A new id is created.")
@click.option("--json", "as_json", is_flag=True, help="Print one event per line as JSON.")
@click.option("--exec", is_flag=True, help="Answer one message and end, also on a terminal.")
@click.option(
    "--safety",
    type=click.Choice(["strict", "balanced", "autonomous"]),
    help="What is asked: everything, what is not read-only, or nothing.  [default: the agent's own]",
)
@click.option(
    "--prompt-file",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Text to put before the message.",
)
@click.option(
    "--attach",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Image to send with the message.",
)
@click.option("--dry-run", is_flag=True, help="Read the agents and end.")
@click.option(
    "--remote",
    metavar="URL",
    help="Let an agent of this server answer; the first word may be the agent's name.",
)
@click.option("--auth-token", envvar="GREENROOM_AUTH_TOKEN", metavar="TOKEN", help="Token for --remote.")
@click.option(
    "--listen",
    metavar="ADDRESS",
    help="Let others drive this run over HTTP: host:port, unix://PATH or fd://N. No credentials are asked for.",
)
@cassette_options
@click.option(
    "--working-dir", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Where tools work."
)
@database_option("session.db in the data directory")
@data_options
@logging_options
def run(**options: Any) -> None:
    """Ask an agent, or chat with it.

    FILE is an agent file; without one, a built-in assistant answers. With MESSAGE, or with text on standard
    input, the answer is printed. On a terminal without MESSAGE a chat begins: Ctrl-C stops an answer, Ctrl-D
    leaves.
    """
    start_logging("WARNING")
    from gateway.cli.run import run as command

    sys.exit(command(**options))


@greenroom.command(short_help="Check an agent file.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@logging_options
def check(files: tuple[str, ...]) -> None:
    """Read agent files as the server would and report what is wrong with them."""
    start_logging("WARNING")
    from gateway.cli.check import check as command

    sys.exit(command(files))


@greenroom.group()
def sessions() -> None:
    """Look at stored sessions."""


@sessions.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one session per line as JSON.")
@database_option("session.db in the data directory")
@data_options
@logging_options
def sessions_list(**options: Any) -> None:
    """List sessions, the latest first."""
    start_logging("WARNING")
    from gateway.cli.sessions import list_sessions

    list_sessions(**options)


@sessions.command("show")
@click.argument("session", metavar="ID")
@database_option("session.db in the data directory")
@data_options
@logging_options
def sessions_show(**options: Any) -> None:
    """Print a session's conversation."""
    start_logging("WARNING")
    from gateway.cli.sessions import show_session

    show_session(**options)


@sessions.command("export")
@click.argument("session", metavar="ID")
@click.option(
    "--events", is_flag=True, help="Print its events instead, one per line, as Copilot's SDKs get them."
)
@database_option("session.db in the data directory")
@data_options
@logging_options
def sessions_export(**options: Any) -> None:
    """Print a whole session as one JSON document, or as its events."""
    start_logging("WARNING")
    from gateway.cli.sessions import export_session

    export_session(**options)


@sessions.command("delete")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@database_option("session.db in the data directory")
@data_options
@logging_options
def sessions_delete(**options: Any) -> None:
    """Delete sessions for good."""
    start_logging("WARNING")
    from gateway.cli.sessions import delete_sessions

    delete_sessions(**options)


def build_parser() -> click.Group:
    """Return the command; for tests and for generating documentation."""
    return greenroom


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: Without the program's name; by default this process's own.

    Returns:
        The exit status: 0, 1 on failure, 2 on wrong usage, 130 after Ctrl-C.
    """
    try:
        result = greenroom.main(
            list(sys.argv[1:] if arguments is None else arguments), "greenroom", standalone_mode=False
        )
        sys.stdout.flush()
    except click.UsageError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        print(f"greenroom: {error.format_message()}", file=sys.stderr)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The interpreter flushes standard output once more at exit, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0
    return result if isinstance(result, int) else 0
