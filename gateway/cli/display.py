"""How a run's events look: as Markdown on a terminal, as plain text in a pipe, or as JSON lines."""

from __future__ import annotations

import re
import sys
from typing import Any, Protocol, TextIO

import msgspec
from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown
from rich.text import Text

from actors.agent import messages as run
from gateway.dialects.docker_agent import wire_event
from gateway.sse import Frame

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
_REFRESHES = 8
ARGUMENTS_SHOWN = 160
RESULT_SHOWN = 240


def printable(text: str) -> str:
    """Return ``text`` without what would command the terminal or reorder what a person reads."""
    return _CONTROL.sub("", text.expandtabs(4))


def shortened(text: str, limit: int) -> str:
    """Return the first line of ``text``, cut to ``limit`` characters, marked when something is missing."""
    first, _, rest = printable(text.strip()).partition("\n")
    return first if len(first) <= limit and not rest else first[: limit - 1] + "…"


def settled(markdown: str) -> int:
    """Return how many characters of a growing Markdown text will not look different however it goes on.

    That is everything up to the last blank line that is not inside a fenced block.
    """
    end = position = 0
    fence = ""
    for line in markdown.splitlines(keepends=True):
        position += len(line)
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif mark:
            fence = mark[1]
        elif not line.strip() and line.endswith("\n"):
            end = position
    return end


def failure_of(event: run.Event) -> str:
    """Return what a person is told about a failed run; empty for any other event."""
    if isinstance(event, run.Failed):
        return event.error
    if isinstance(event, run.BudgetExceeded):
        return event.message
    return ""


class Display(Protocol):
    """Where a run's events go, in the order they come."""

    def show(self, frame: Frame) -> None:
        """Show one event."""
        ...

    def flush(self) -> None:
        """End what is shown live: before a question and at the end."""
        ...


class JsonDisplay:
    """One event per line, in the words of the sessions API."""

    def __init__(self, session_id: str, out: TextIO | None = None) -> None:
        self._session_id = session_id
        self._out = out or sys.stdout

    def show(self, frame: Frame) -> None:
        """Print the event, so that a reader has it at once."""
        self._out.write(msgspec.json.encode(wire_event(frame, self._session_id)).decode() + "\n")
        self._out.flush()

    def flush(self) -> None:
        """Nothing is held back."""


class PlainDisplay:
    """The answer on standard output and nothing else there; tools and trouble on standard error."""

    def __init__(self, out: TextIO | None = None, notes: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._notes = notes or sys.stderr
        self._line_open = False

    def show(self, frame: Frame) -> None:
        """Print what belongs to the answer as it comes."""
        event: Any = frame.event
        match event:
            case run.TextDelta(session="", text=text):
                self._out.write(text)
                self._out.flush()
                self._line_open = not text.endswith("\n")
            case run.AssistantMessageAdded(session=""):
                self.flush()
            case run.ToolStarted(call=call):
                self._note(f"> {call.name} {shortened(call.arguments, ARGUMENTS_SHOWN)}")
            case run.Warned(message=message):
                self._note(f"warning: {message}")
            case run.ModelFellBack(reason=reason, fallback_model=model):
                self._note(f"warning: {reason}; trying {model}")
            case _:
                if text := failure_of(event):
                    self._note(f"error: {text}")

    def flush(self) -> None:
        """End the line the answer stopped in."""
        if self._line_open:
            self._out.write("\n")
            self._out.flush()
            self._line_open = False

    def _note(self, text: str) -> None:
        self.flush()
        print(printable(text), file=self._notes, flush=True)


class MarkdownDisplay:
    """Markdown that grows on a terminal.

    Finished blocks are printed once and scroll away; only the block that is still being written is redrawn, so
    that an answer longer than the screen stays readable.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._text = ""
        self._live: Live | None = None

    def show(self, frame: Frame) -> None:
        """Draw the event."""
        event: Any = frame.event
        match event:
            case run.TextDelta(session="", text=text):
                self._grow(printable(text))
            case run.AssistantMessageAdded(session=""):
                self.flush()
            case run.ToolStarted(call=call):
                self._note(f"⚙ {call.name} {shortened(call.arguments, ARGUMENTS_SHOWN)}", "cyan")
            case run.ToolReturned(output=output, is_error=is_error):
                self._note(f"  {shortened(output, RESULT_SHOWN)}", "red" if is_error else "dim")
            case run.AgentSwitched(switching=True, to_agent=to_agent):
                self._note(f"→ {to_agent}", "cyan")
            case run.Warned(message=message):
                self._note(f"warning: {message}", "yellow")
            case run.ModelFellBack(reason=reason, fallback_model=model):
                self._note(f"{reason}; trying {model}", "yellow")
            case _:
                if text := failure_of(event):
                    self._note(f"error: {text}", "bold red")

    def flush(self) -> None:
        """Print what is still live for good."""
        if self._live is not None:
            self._live.update(Text(""))
            self._live.stop()
            self._live = None
        if self._text.strip():
            self._console.print(Markdown(self._text))
        self._text = ""

    def _grow(self, more: str) -> None:
        self._text += more
        if self._live is None:
            self._live = Live(
                console=self._console, refresh_per_second=_REFRESHES, transient=True, vertical_overflow="crop"
            )
            self._live.start()
        end = settled(self._text)
        done, self._text = self._text[:end], self._text[end:]
        # First what stays live, then what is printed above it: the other way round the block would flash up twice.
        self._live.update(Markdown(self._text))
        if done.strip():
            self._live.console.print(Markdown(done))

    def _note(self, text: str, style: str) -> None:
        self.flush()
        self._console.print(Text(printable(text), style=style))
