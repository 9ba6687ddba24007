"""The ``script`` toolset: shell commands declared in the YAML file, each as a tool with named arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from actors.tools.builtin.shell import base_environment, command_directory, describe_exit
from actors.tools.builtin.toolset import WRITES
from actors.tools.expand import expand_all
from actors.tools.options import ScriptOptions, ScriptTool
from actors.tools.process import run_process, shell_command
from actors.tools.text import Excerpt
from actors.tools.tool import JSON, Definition, Tool, ToolContext, ToolError, ToolResult

SECONDS = 300.0
"""How long a script may run."""


class ScriptCall:
    """One declared command. Arguments reach it as environment variables and are never part of its text."""

    def __init__(self, name: str, script: ScriptTool) -> None:
        self._script = script
        properties = {key: msgspec.to_builtins(argument) for key, argument in script.args.items()}
        for key, schema in properties.items():
            schema.setdefault("type", "string")
            properties[key] = schema
        required = list(script.args) if script.required is None else list(script.required)
        self._definition = Definition(
            name=name,
            description=script.description or f"Run the script {name}.",
            parameters={
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": False,
            },
            category="script",
            annotations=WRITES,
        )

    @property
    def definition(self) -> Definition:
        """The declared tool."""
        return self._definition

    async def run(self, arguments: Mapping[str, JSON], context: ToolContext) -> ToolResult:
        """Run the command.

        Raises:
            ToolError: it cannot be started, or an argument cannot be an environment variable.

        Cancellation: its processes are gone.
        """
        excerpt = Excerpt()

        def on_output(data: bytes) -> None:
            if text := excerpt.feed(data):
                context.emit_output(text)

        values = {
            key: argument.default
            for key, argument in self._script.args.items()
            if argument.default is not None
        } | dict(arguments)
        environment = {
            **base_environment(context),
            **expand_all(self._script.env, context),
            **{key: _as_variable(key, value) for key, value in values.items()},
        }
        ended = await run_process(
            shell_command(self._script.cmd),
            cwd=command_directory(context.working_dir, self._script.working_dir),
            env=environment,
            seconds=SECONDS,
            on_output=on_output,
        )
        excerpt.finish()
        if ended.timed_out:
            return ToolResult(
                f"Script timed out after {SECONDS:g}s.\nOutput: {excerpt.text()}", is_error=True
            )
        if ended.code:
            text = f"Error executing script: {describe_exit(ended.code)}\nOutput: {excerpt.text()}"
            return ToolResult(text, is_error=True, meta={"exit_code": ended.code})
        return ToolResult(excerpt.text())


def _as_variable(name: str, value: JSON) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if "\0" in text:
        raise ToolError(f"argument '{name}' has a NUL character")
    return text


class Scripts:
    """One tool per entry of the option ``shell``."""

    name = "script"
    instruction = ""

    def __init__(self, options: ScriptOptions) -> None:
        self._tools = [ScriptCall(name, script) for name, script in options.shell.items()]

    async def start(self) -> None:
        """Nothing to connect."""

    async def aclose(self) -> None:
        """Nothing to close."""

    def tools(self) -> Sequence[Tool]:
        """Return the declared tools."""
        return self._tools
