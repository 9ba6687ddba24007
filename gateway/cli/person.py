"""The person at the terminal: reads lines with history and editing, and asks for decisions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import trio
from prompt_toolkit import PromptSession
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from rich.console import Console
from rich.text import Text

from actors.agent import messages as run
from gateway.cli.conversation import Verdict
from gateway.cli.display import printable

_VERDICTS: dict[str, Verdict] = {
    "": "reject",
    "n": "reject",
    "no": "reject",
    "y": "approve",
    "yes": "approve",
    "t": "approve-tool",
    "a": "approve-autonomous",
}
_QUESTION = "Run it? [y]es  [n]o  [t]his tool always  [a]ll from now on: "


def history_in(data_dir: Path) -> History:
    """Return the line history kept in the data directory; in memory when it cannot be written."""
    path = data_dir / "history"
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return bindings


class TerminalPerson:
    """Asks on the terminal. Ctrl-C at a question refuses, Ctrl-D too.

    Args:
        console: Where questions are printed.
        lines: Reads the lines of a chat.
        answers: Reads answers to questions, which belong in no history.
    """

    def __init__(
        self, console: Console, lines: PromptSession[str], answers: PromptSession[str] | None = None
    ) -> None:
        self._console = console
        self._lines = lines
        self._answers = answers or PromptSession(
            history=InMemoryHistory(), input=lines.app.input, output=lines.app.output
        )

    @classmethod
    def at_terminal(cls, console: Console, data_dir: Path) -> TerminalPerson:
        """Return the person in front of this process's terminal."""
        return cls(console, PromptSession(history=history_in(data_dir), key_bindings=_bindings()))

    async def line(self) -> str | None:
        """Wait for a line; empty after Ctrl-C, ``None`` when the person wants to leave (Ctrl-D)."""
        try:
            return await _read(self._lines, "> ")
        except KeyboardInterrupt:
            return ""
        except EOFError:
            return None

    async def approve(self, request: run.ApprovalRequested) -> tuple[Verdict, str]:
        """Show the call and ask."""
        self._show(f"{request.call.name} {request.call.arguments}", "bold yellow")
        if reason := request.metadata.get("reason", ""):
            self._show(reason, "yellow")
        while True:
            answer = await self._ask(_QUESTION)
            verdict = _VERDICTS.get(answer.strip().lower())
            if verdict == "reject":
                return verdict, await self._ask("Why not? (Enter for no reason): ") if answer else ""
            if verdict is not None:
                return verdict, ""

    async def go_on(self, limit: int) -> bool:
        """Ask whether to continue."""
        answer = await self._ask(f"{limit} model calls were made. Go on? [y/N]: ")
        return answer.strip().lower() in ("y", "yes")

    async def answer(self, request: run.ElicitationRequested) -> tuple[str, dict[str, Any]]:
        """Ask for the form's fields one by one; an empty answer leaves an optional field out."""
        self._show(request.message, "bold")
        if request.mode == "url":
            self._show(request.url, "underline")
            done = await self._ask("Done? [y/N]: ")
            return ("accept" if done.strip().lower() in ("y", "yes") else "decline"), {}
        schema = request.schema or {}
        content: dict[str, Any] = {}
        for name, field in schema.get("properties", {}).items():
            text = await self._ask(f"{printable(field.get('title') or name)}: ")
            if text:
                content[name] = value_of(text, field.get("type", "string"))
            elif name in schema.get("required", ()):
                return "decline", {}
        return "accept", content

    async def _ask(self, question: str) -> str:
        try:
            return await _read(self._answers, question)
        except (KeyboardInterrupt, EOFError):
            return ""

    def _show(self, text: str, style: str) -> None:
        self._console.print(Text(printable(text), style=style))


def value_of(text: str, kind: str) -> Any:
    """Return what a person typed as a value of the JSON Schema type ``kind``; text when it is none."""
    if kind == "boolean":
        return text.strip().lower() in ("y", "yes", "true", "1")
    if kind in ("integer", "number"):
        try:
            return msgspec.json.decode(text.strip().encode())
        except msgspec.DecodeError:
            return text
    return text


async def _read(prompt: PromptSession[str], text: str) -> str:
    # The prompt runs its own event loop, hence the thread; Ctrl-C reaches it as a key, not as a signal.
    return await trio.to_thread.run_sync(lambda: prompt.prompt(text, handle_sigint=False))
