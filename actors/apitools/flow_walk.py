"""Walking through a flow: what each node does and which edge is taken next; the actor decides when."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from msgspec import Struct, structs

from actors.apitools.caller import Caller
from actors.apitools.flow_rules import Edge, Graph, Node, kind_of
from actors.apitools.jsonpath import first_match
from actors.apitools.messages import FlowRun, Performed
from actors.errors import ActorsError, Unavailable
from actors.tools.http_api.call import ApiCall, is_array, members
from actors.tools.http_api.fit import dumps
from actors.tools.http_api.request import fill_variables

JSON = Any
MAX_STEPS = 100
"""Nodes that one input may lead through: a circle without a conversation ends here."""
TRAIL = 200
Speak = Callable[[FlowRun, str], Awaitable[str]]
Choose = Callable[[FlowRun, Sequence[str], str], Awaitable[int]]


class Walker(Struct, frozen=True, kw_only=True):
    """What walking needs.

    Attributes:
        caller: Makes the calls of tool and api nodes.
        find_call: Returns a stored tool as a call. Raises: NotFound.
        speak: Lets the session's agent answer a text.
        choose: Asks the model which of several conditions a text meets; -1 for none.
        save: Stores where the run is.
        clock: Seconds since the epoch.
    """

    caller: Caller
    find_call: Callable[[str], Awaitable[ApiCall]]
    speak: Speak
    choose: Choose
    save: Callable[[FlowRun], Awaitable[None]]
    clock: Callable[[], float]


async def walk(walker: Walker, run: FlowRun, said: str | None) -> FlowRun:
    """Walk until the run waits for a person or is over, and return it then.

    Args:
        walker: What it needs.
        run: Where it is.
        said: What the person said to the conversation node it waits at; ``None`` at the beginning.

    Cancellation: the last saved step is where it was.
    """
    flow = Graph(run.graph)
    if said is not None:
        edge = await _answered(walker, run, flow, said)
        if edge is None:
            reply = await walker.speak(run, said)
            return structs.replace(run, state="waiting", reply=reply)
        run = _moved(run, edge)
    for _ in range(MAX_STEPS):
        await walker.save(run)
        node = flow.nodes[run.node]
        try:
            following = await _visit(walker, run, flow, node, said)
        except ActorsError as error:
            return structs.replace(run, state="failed", error=f"node {run.node}: {error.message}")
        if isinstance(following, FlowRun):
            return following
        run, edge = following
        if node["type"] == "conversation":
            said = None
        run = _moved(run, edge)
    return structs.replace(
        run, state="failed", error=f"more than {MAX_STEPS} nodes without waiting for a person"
    )


async def _visit(
    walker: Walker, run: FlowRun, flow: Graph, node: Node, said: str | None
) -> FlowRun | tuple[FlowRun, Edge]:
    """Do what a node does; return the run when it stops here, else it and the edge to take."""
    edges = flow.out(run.node)
    match node["type"]:
        case "begin":
            return run, edges[0]
        case "conversation":
            run = await _spoken(walker, run, node, said)
            skip = next((edge for edge in edges if edge.get("skip_user_response")), None)
            return (run, skip) if skip else structs.replace(run, state="waiting")
        case "condition":
            values = variables_of(walker, run)
            found = next((edge for edge in edges if kind_of(edge) == "logic" and holds(edge, values)), None)
            return run, found or _fallback(edges)
        case "endCall":
            if members(node.get("data")).get("prompt"):
                run = await _spoken(walker, run, node, said)
            return structs.replace(run, state="ended")
        case _:
            return await _called(walker, run, node, edges)


async def _spoken(walker: Walker, run: FlowRun, node: Node, said: str | None) -> FlowRun:
    prompt = fill_variables(str(members(node.get("data")).get("prompt", "")), variables_of(walker, run))
    text = f"[Instruction for this step]\n{prompt}"
    if said:
        text += f"\n\n[The person says]\n{said}"
    return structs.replace(run, reply=await walker.speak(run, text))


async def _answered(walker: Walker, run: FlowRun, flow: Graph, said: str) -> Edge | None:
    """Return the edge that what a person said leads over; ``None`` to stay."""
    edges = flow.out(run.node)
    values = variables_of(walker, run)
    for edge in edges:
        if kind_of(edge) == "logic" and holds(edge, values):
            return edge
    asked = [edge for edge in edges if kind_of(edge) == "ai"]
    if asked:
        prompts = [fill_variables(str(edge["condition"]["prompt"]), values) for edge in asked]
        chosen = await walker.choose(run, prompts, said)
        if 0 <= chosen < len(asked):
            return asked[chosen]
    return next((edge for edge in edges if kind_of(edge) == "fallback"), None)


async def _called(walker: Walker, run: FlowRun, node: Node, edges: list[Edge]) -> tuple[FlowRun, Edge]:
    data: Mapping[str, JSON] = node.get("data") or {}
    values = variables_of(walker, run)
    if node["type"] == "tool":
        tool_id = str(data["tool_id"])
        call = await walker.find_call(tool_id)
        known: Mapping[str, JSON] = call.parameters.get("properties") or {}
        arguments = {name: values[name] for name in known if name in values}
        arguments |= cast("dict[str, JSON]", _filled(data.get("arguments") or {}, values))
    else:
        tool_id, call = "", inline_call(run.node, data)
        arguments = cast("dict[str, JSON]", _filled(data["api_configuration"].get("body") or {}, values))
    done = await walker.caller.perform(
        tool_id, call, arguments, values, session_id=run.session_id, node_id=run.node
    )
    fallback = next((edge for edge in edges if kind_of(edge) == "fallback"), None)
    success = next((edge for edge in edges if kind_of(edge) != "fallback"), None)
    if call.response_mode == "fire_and_forget":
        return run, fallback if done.is_error and fallback else edges[0]
    wanted: list[Mapping[str, JSON]] = data.get("response_variables") or []
    if done.record.state == "succeeded" and not (wanted and done.body is None):
        return structs.replace(run, variables={**run.variables, **_taken(wanted, done)}), success or edges[0]
    # A failure follows the fallback; where that is the only edge, it is the way on for both.
    if fallback is None:
        raise Unavailable(f"the call failed and there is no fallback edge: {done.text[:500]}")
    return run, fallback


def inline_call(node_id: str, data: Mapping[str, JSON]) -> ApiCall:
    """Return the call of an api node, whose body is given and not asked of a model."""
    given: Mapping[str, JSON] = data["api_configuration"]
    return ApiCall(
        name=node_id,
        url=str(given["url"]),
        method=given["method"],
        headers=given.get("headers") or {},
        seconds=given.get("timeout_seconds") or 30,
        response_mode=data.get("response_mode") or "wait",
    )


def _taken(wanted: Sequence[Mapping[str, JSON]], done: Performed) -> dict[str, JSON]:
    taken: dict[str, JSON] = {}
    for variable in wanted:
        found, value = first_match(str(variable["json_path"]), done.body)
        if found and value is not None:
            taken[str(variable["variable_name"])] = value
    return taken


def _filled(value: JSON, variables: Mapping[str, JSON]) -> JSON:
    """Return a value with ``{{name}}`` filled in; a text that is nothing else takes the variable's own type."""
    if isinstance(value, str):
        name = value.strip().removeprefix("{{").removesuffix("}}").strip()
        if value.strip() == "{{" + name + "}}" and variables.get(name) is not None:
            return variables[name]
        return fill_variables(value, variables)
    if isinstance(value, Mapping):
        return {name: _filled(item, variables) for name, item in cast("Mapping[str, JSON]", value).items()}
    if is_array(value):
        return [_filled(item, variables) for item in value]
    return value


def variables_of(walker: Walker, run: FlowRun) -> dict[str, JSON]:
    """Return the run's variables and those of the system."""
    now = datetime.fromtimestamp(walker.clock(), UTC).isoformat(timespec="seconds")
    return {
        "current_time": now,
        "call_id": run.session_id,
        "agent_id": run.agent or run.source,
        **run.variables,
    }


def holds(edge: Edge, variables: Mapping[str, JSON]) -> bool:
    """Tell whether a logic condition is met; an unset variable meets nothing but ``!=``."""
    condition = edge["condition"]
    results = [
        _equation(
            each,
            variables,
        )
        for each in condition["equations"]
    ]
    return any(results) if condition.get("operator") == "||" else all(results)


def _equation(equation: Mapping[str, JSON], variables: Mapping[str, JSON]) -> bool:
    left, right = variables.get(equation["variable"]), equation.get("value")
    operator = equation["operator"]
    if operator == "exists":
        return left is not None
    if operator in {"==", "!="}:
        same = left == right or (left is not None and _text(left) == _text(right))
        return same if operator == "==" else not same
    if left is None:
        return False
    if operator == "contains":
        return right in left if is_array(left) else _text(right) in _text(left)
    try:
        first, second = float(left), float(cast("Any", right))
    except (TypeError, ValueError):
        return False
    return {">": first > second, ">=": first >= second, "<": first < second, "<=": first <= second}[operator]


def _text(value: JSON) -> str:
    return value if isinstance(value, str) else dumps(value)


def _fallback(edges: list[Edge]) -> Edge:
    found = next((edge for edge in edges if kind_of(edge) == "fallback"), None)
    if found is None:
        raise Unavailable("no condition is met and there is no fallback edge")
    return found


def _moved(run: FlowRun, edge: Edge) -> FlowRun:
    return structs.replace(run, node=edge["target"], trail=(*run.trail, run.node)[-TRAIL:])
