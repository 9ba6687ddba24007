"""Typed Python functions as tools: the signature becomes the schema, the docstring the description."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Annotated, Any, cast, get_type_hints, overload

import msgspec
import trio
from msgspec import Struct

from actors.errors import Invalid
from actors.tools.tool import JSON, Annotations, Definition, ToolContext, ToolResult

Function = Callable[..., Any]
_ARGUMENT = re.compile(r"^\s+\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.*)$")
_SECTION = re.compile(
    r"^(args|arguments|parameters|returns?|raises|yields|examples?|notes?|attributes|cancellation):\s*$",
    re.IGNORECASE,
)
_RESULT_ENCODER = msgspec.json.Encoder(enc_hook=str, order="deterministic")


class FunctionTool:
    """A tool that calls a Python function; made by :func:`function_tool`."""

    def __init__(
        self,
        function: Function,
        definition: Definition,
        arguments: type[Struct],
        context: str,
        *,
        inline: bool,
        abandon: bool,
    ) -> None:
        self.function = function
        self._definition = definition
        self._arguments = arguments
        self._context = context
        self._inline = inline
        self._abandon = abandon

    @property
    def definition(self) -> Definition:
        """The tool as models see it."""
        return self._definition

    def __repr__(self) -> str:
        return f"<FunctionTool {self._definition.name}>"

    async def run(self, arguments: Mapping[str, JSON], context: ToolContext) -> ToolResult:
        """Call the function.

        Raises:
            Invalid: the arguments do not fit the signature.
            Exception: whatever the function raises.

        Cancellation: an async function is cancelled. A plain function's thread is left to itself and its result
            dropped, or waited for if the tool was made so.
        """
        try:
            values = msgspec.convert(arguments, self._arguments)
        except msgspec.ValidationError as error:
            raise Invalid(f"the arguments do not fit: {error}") from error
        keywords = {name: getattr(values, name) for name in self._arguments.__struct_fields__}
        if self._context:
            keywords[self._context] = context
        if inspect.iscoroutinefunction(self.function):
            return as_result(await cast("Awaitable[object]", self.function(**keywords)))
        call = partial(self.function, **keywords)
        return as_result(
            call() if self._inline else await trio.to_thread.run_sync(call, abandon_on_cancel=self._abandon)
        )


def function_tool(
    function: Function,
    *,
    name: str = "",
    description: str = "",
    category: str = "",
    annotations: Annotations = Annotations(),  # noqa: B008 - frozen
    rename: Mapping[str, str] | None = None,
    inline: bool = False,
    abandon: bool = True,
) -> FunctionTool:
    """Make a tool of a typed function.

    Every parameter needs a type that msgspec can decode. A parameter of type :class:`ToolContext` is filled
    in and not shown to the model. The docstring's text describes the tool, its ``Args:`` section the
    parameters. The function may return text, a :class:`ToolResult`, nothing, or any value that can be written
    as JSON.

    Args:
        function: Plain or async. A plain function runs in a thread.
        name: The tool's name; the function's unless given.
        description: Instead of the docstring's text.
        category: What kind of tool it is.
        annotations: Hints; ``read_only_hint`` lets it run unasked by default.
        rename: Parameter names as the model sees them, by name in Python.
        inline: Call a plain function directly, because it neither waits nor computes for long.
        abandon: On cancellation, leave a plain function's thread to itself instead of waiting for it.

    Raises:
        TypeError: a parameter has no type, or one that JSON cannot give.
    """
    text, documented = _read_docstring(inspect.getdoc(function) or "")
    hints = get_type_hints(function, include_extras=True)
    context = ""
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY}:
            raise TypeError(f"{function.__qualname__}: parameter {parameter.name!r} cannot be given by name")
        if parameter.name not in hints:
            raise TypeError(f"{function.__qualname__}: parameter {parameter.name!r} needs a type")
        hint = hints[parameter.name]
        if hint is ToolContext:
            context = parameter.name
            continue
        if about := documented.get(parameter.name):
            hint = Annotated[hint, msgspec.Meta(description=about)]
        default = parameter.default
        fields.append(
            (parameter.name, hint) if default is parameter.empty else (parameter.name, hint, default)
        )
    arguments = msgspec.defstruct(
        "Arguments", fields, kw_only=True, frozen=True, forbid_unknown_fields=True, rename=dict(rename or {})
    )
    definition = Definition(
        name=name or function.__name__,
        description=description or text,
        parameters=_schema_of(arguments),
        category=category,
        annotations=annotations,
    )
    return FunctionTool(function, definition, arguments, context, inline=inline, abandon=abandon)


@overload
def tool(function: Function, /) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str = "",
    description: str = "",
    read_only: bool = False,
    destructive: bool = False,
    inline: bool = False,
) -> Callable[[Function], FunctionTool]: ...
def tool(
    function: Function | None = None,
    /,
    *,
    name: str = "",
    description: str = "",
    read_only: bool = False,
    destructive: bool = False,
    inline: bool = False,
) -> FunctionTool | Callable[[Function], FunctionTool]:
    """Turn a typed function into a tool; used bare or as a decorator with options (see `function_tool`).

    Args:
        function: The function, when used bare.
        name: The tool's name; the function's unless given.
        description: Instead of the docstring's text.
        read_only: It changes nothing, so it may run unasked by default.
        destructive: It can destroy data.
        inline: Call a plain function directly instead of in a thread.
    """

    def decorate(function: Function) -> FunctionTool:
        hints = Annotations(read_only_hint=read_only, destructive_hint=destructive)
        return function_tool(function, name=name, description=description, annotations=hints, inline=inline)

    return decorate if function is None else decorate(function)


def as_result(value: object) -> ToolResult:
    """Turn what a function returned into a result: text as it is, nothing as empty, other values as JSON."""
    if isinstance(value, ToolResult):
        return value
    if value is None:
        return ToolResult("")
    if isinstance(value, str):
        return ToolResult(value)
    encoded = _RESULT_ENCODER.encode(value)
    return ToolResult(encoded.decode(), structured=msgspec.json.decode(encoded))


def _schema_of(arguments: type[Struct]) -> dict[str, JSON]:
    (schema,), components = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    own = str(schema["$ref"]).rpartition("/")[2]
    parameters: dict[str, JSON] = dict(components.pop(own))
    parameters.pop("title", None)
    parameters.setdefault("properties", {})
    if components:
        parameters["$defs"] = components
    return parameters


def _read_docstring(docstring: str) -> tuple[str, dict[str, str]]:
    """Split a Google-style docstring into its text before the first section and its argument descriptions."""
    text: list[str] = []
    arguments: dict[str, str] = {}
    section, current = "", ""
    for line in docstring.splitlines():
        if heading := _SECTION.match(line):
            section = heading[1].lower()
        elif not section:
            text.append(line)
        elif section in {"args", "arguments", "parameters"} and line.strip():
            indented = len(line) - len(line.lstrip())
            found = _ARGUMENT.match(line) if indented <= 4 else None
            if found:
                current = found[1]
                arguments[current] = found[2].strip()
            elif current:
                arguments[current] += " " + line.strip()
    return "\n".join(text).strip(), arguments
