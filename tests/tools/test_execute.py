"""One call: arguments, failures, bounds; and typed functions as tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from actors.errors import Conflict
from actors.tools.execute import NO_OUTPUT, bounded, run_call, stored_output
from actors.tools.function import FunctionTool, function_tool, tool
from actors.tools.tool import Media, ToolContext, ToolError, ToolResult
from tests.tools.kit import context_in


class Point(msgspec.Struct):
    """A place."""

    x: int
    y: int = 0


@tool
def describe(points: list[Point], context: ToolContext, title: str = "", limit: int | None = None) -> str:
    """Describe points.

    In words.

    Args:
        points: Where to look,
            in order.
        title: A heading.

    Returns:
        Nothing the model sees here.
    """
    return f"{context.agent}: {title} {points} {limit}"


async def run(subject: FunctionTool, arguments: str, limit: int = 1000) -> ToolResult:
    return await run_call(subject, "c", arguments, context_in(Path("/tmp/w")), limit)


def test_signature_and_docstring_become_the_definition() -> None:
    definition = describe.definition
    assert definition.name == "describe"
    assert definition.description == "Describe points.\n\nIn words."
    parameters: Any = definition.parameters
    assert list(parameters["properties"]) == ["points", "title", "limit"]
    assert parameters["required"] == ["points"]
    assert parameters["properties"]["points"]["description"] == "Where to look, in order."
    assert parameters["additionalProperties"] is False
    assert "Point" in parameters["$defs"]


async def test_arguments_are_decoded_and_the_context_is_filled_in() -> None:
    result = await run(describe, '{"points":[{"x":"1"}],"title":"T"}')
    assert result == ToolResult("root: T [Point(x=1, y=0)] None")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("{", "not valid JSON"),
        ('{"points":[]', "not valid JSON"),
        ("[1]", "must be a JSON object"),
        ("5", "must be a JSON object"),
        ("", "argument 'points' is required"),
        ("null", "argument 'points' is required"),
        ('{"points":[{"x":1}],"context":1}', "argument 'context' is unknown"),
        ('{"points":[{"x":"a"}]}', "argument 'points[0].x' must be of type integer"),
        ("\ud800", "not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
async def test_bad_arguments_are_an_error_result_that_names_the_problem(arguments: str, problem: str) -> None:
    result = await run(describe, arguments)
    assert result.is_error
    assert result.output.startswith("Error calling tool: ")
    assert problem in result.output


def failing(error: Exception) -> FunctionTool:
    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise error

    return function_tool(fail)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ToolError("no luck"), "Error calling tool: no luck"),
        (Conflict("stale"), "Error calling tool: stale"),
        (ValueError("bug"), "Error calling tool: bug"),
        (KeyError(), "Error calling tool: KeyError"),
        (ExceptionGroup("g", [ExceptionGroup("h", [OSError("deep")])]), "Error calling tool: deep"),
        (RuntimeError("\ud800\0"), "Error calling tool: \ufffd\ufffd"),
        (RecursionError("deep"), "Error calling tool: deep"),
    ],
)
async def test_failure_becomes_a_result(error: Exception, text: str) -> None:
    assert await run(failing(error), "{}") == ToolResult(text, is_error=True)


async def test_cancellation_is_not_a_result(autojump_clock: trio.testing.MockClock) -> None:
    with trio.move_on_after(1) as scope:
        await run(function_tool(trio.sleep_forever), "{}")
    assert scope.cancelled_caught


async def test_what_functions_return_becomes_text() -> None:
    def nothing() -> None:
        return None

    def point() -> Point:
        return Point(1)

    def odd() -> set[complex]:
        return {1j}

    result = await run(function_tool(nothing), "")
    assert (result.output, stored_output(result)) == ("", NO_OUTPUT)
    result = await run(function_tool(point), "")
    assert (result.output, result.structured) == ('{"x":1,"y":0}', {"x": 1, "y": 0})
    assert (await run(function_tool(odd), "")).output == '["1j"]'


async def test_plain_functions_run_in_a_thread_unless_inline() -> None:
    def where() -> bool:
        try:
            trio.lowlevel.current_task()
        except RuntimeError:
            return False
        return True

    assert (await run(function_tool(where), "")).output == "false"
    assert (await run(function_tool(where, inline=True), "")).output == "true"


def test_function_that_cannot_be_a_tool_is_refused() -> None:
    def untyped(a) -> None:  # type: ignore[no-untyped-def]  # pyright: ignore
        ...

    def starred(*a: int) -> None: ...

    with pytest.raises(TypeError, match="'a' needs a type"):
        function_tool(untyped)  # pyright: ignore[reportUnknownArgumentType]
    with pytest.raises(TypeError, match="'a' cannot be given by name"):
        function_tool(starred)


def test_decorator_takes_options() -> None:
    @tool(name="look", read_only=True, description="Looks.")
    def f() -> str:
        return ""

    assert (f.definition.name, f.definition.description) == ("look", "Looks.")
    assert f.definition.annotations.read_only_hint
    assert "look" in repr(f)


@pytest.mark.parametrize("size", [1000, 1_000_000, 200_000_000])
async def test_giant_result_is_a_bounded_excerpt_with_a_marker(size: int) -> None:
    def giant() -> str:
        return "é" * size

    result = await run(function_tool(giant, inline=True), "", limit=2000)
    assert len(result.output) <= 2000
    assert ("characters omitted" in result.output) is (size > 2000)


def test_everything_in_a_result_is_bounded_and_clean() -> None:
    media = tuple(Media("image", "image/png", data="A" * 5_000_000, name=f"{n}\0") for n in range(3))
    result = bounded(
        ToolResult("x\0", media=media, structured={"a\0": ["\ud800", "b" * 10]}, meta={"big": "x" * 1000}),
        100,
    )
    assert result.output.startswith("x\ufffd")
    assert "left out: too large" in result.output
    assert len(result.media) == 1
    assert result.structured == {"a\ufffd": ["\ufffd", "bbbbbbbbbb"]}
    assert result.meta == {}
    assert bounded(ToolResult("", structured=object()), 10).structured is None
    assert bounded(ToolResult("", structured="x" * 100), 10).structured is None
