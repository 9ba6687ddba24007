"""The ``shell`` toolset: one command line, run to its end or its timeout, with live output."""

# ruff: noqa: D417 - docstrings of tools are written for models, who do not see the context

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from actors.tools.builtin.toolset import DESTRUCTIVE, Builtin
from actors.tools.expand import expand_all
from actors.tools.options import ShellOptions
from actors.tools.process import run_process, shell_command
from actors.tools.text import Excerpt
from actors.tools.tool import ToolContext, ToolError, ToolResult
from actors.tools.workspace import Workspace

DEFAULT_SECONDS = 30
MAX_SECONDS = 3600


def command_directory(working_dir: Path, text: str) -> Path:
    """Return the directory a command starts in.

    Raises:
        ToolError: it is not an existing directory inside the working directory.
    """
    place = Workspace(working_dir).place(text or ".")
    if not place.path.is_dir():
        raise ToolError(f"{text}: not a directory")
    return place.path


def askpass_environment(option: bool | str) -> dict[str, str]:
    """Return the variable that tells sudo which program asks for the password."""
    return {"SUDO_ASKPASS": option} if isinstance(option, str) and option else {}


class Shell(Builtin):
    """Runs command lines with the user's environment plus the option's ``env``."""

    name = "shell"
    text = (
        "Commands run in a fresh shell each time, without a terminal or input. Everything a command started is "
        "ended with it; use a background job, where there is one, for what has to go on running."
    )

    def __init__(self, options: ShellOptions) -> None:
        super().__init__()
        self._options = options
        self.offer(self.shell, DESTRUCTIVE, rename={"seconds": "timeout"})

    async def shell(
        self, cmd: str, context: ToolContext, cwd: str = ".", seconds: float = DEFAULT_SECONDS
    ) -> ToolResult:
        """Run a command line in a shell and return its output.

        Args:
            cmd: The command line.
            cwd: Directory to run it in, relative to the working directory.
            seconds: After how many seconds it is ended.
        """
        if not cmd.strip():
            raise ToolError("the command is empty")
        seconds = min(max(seconds, 0.1), MAX_SECONDS)
        excerpt = Excerpt()

        def on_output(data: bytes) -> None:
            if text := excerpt.feed(data):
                context.emit_output(text)

        ended = await run_process(
            shell_command(cmd),
            cwd=command_directory(context.working_dir, cwd),
            env=self._environment(context),
            seconds=seconds,
            on_output=on_output,
        )
        if rest := excerpt.finish():
            context.emit_output(rest)
        output = excerpt.text()
        if ended.timed_out:
            text = f"Command timed out after {seconds:g}s and was ended.\nOutput: {output}"
            return ToolResult(text, is_error=True, meta={"timed_out": True})
        if ended.code:
            text = f"Error executing command: {describe_exit(ended.code)}\nOutput: {output}"
            return ToolResult(text, meta={"exit_code": ended.code})
        return ToolResult(output, meta={"exit_code": 0})

    def _environment(self, context: ToolContext) -> Mapping[str, str]:
        return {
            **base_environment(context),
            **expand_all(self._options.env, context),
            **askpass_environment(self._options.sudo_askpass),
        }


def base_environment(context: ToolContext) -> dict[str, str]:
    """Return the environment for child processes: the context's, with at least a search path."""
    return {"PATH": os.defpath, **context.env}


def describe_exit(code: int) -> str:
    """Return a process's end in words."""
    return f"exit status {code}" if code > 0 else f"ended by signal {-code}"
