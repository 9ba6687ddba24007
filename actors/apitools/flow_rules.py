"""What a flow must satisfy before it is saved, and what its author should know besides; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast

from msgspec import Struct

from actors.apitools.jsonpath import parse_path
from actors.apitools.messages import StoredFlow, StoredTool
from actors.errors import Invalid
from actors.tools.http_api import rules
from actors.tools.http_api.call import is_array, members
from actors.tools.http_api.request import fill_variables

JSON = Any
Node = Mapping[str, JSON]
Edge = Mapping[str, JSON]
Level = Literal["critical", "runtime", "all"]
NODE_TYPES = ("begin", "conversation", "tool", "api", "condition", "endCall")
OPERATORS = ("==", "!=", ">", ">=", "<", "<=", "contains", "exists")
MAX_NODES = 200
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_DATA: Mapping[str, frozenset[str]] = {
    "begin": frozenset({"name"}),
    "conversation": frozenset({"name", "prompt"}),
    "tool": frozenset({"name", "tool_id", "arguments", "response_variables"}),
    "api": frozenset({"name", "api_configuration", "response_variables", "response_mode"}),
    "condition": frozenset({"name"}),
    "endCall": frozenset({"name", "prompt"}),
}


class Finding(Struct, frozen=True):
    """One thing that is wrong or worth knowing."""

    rule: str
    node_id: str
    message: str
    suggestion: str = ""


class FlowReport(Struct, frozen=True):
    """``valid`` says that nothing is wrong; advisories do not count."""

    valid: bool
    errors: tuple[Finding, ...]
    advisories: tuple[Finding, ...]


class FlowInvalid(Invalid):
    """A flow cannot be saved; ``fields["errors"]`` lists why."""

    code = "flow_invalid"


def validate(graph: JSON, tools: Mapping[str, StoredTool], level: Level = "all") -> FlowReport:
    """Return what is wrong with a flow.

    Args:
        graph: ``{nodes, edges}`` as the client sent it.
        tools: The organisation's tools by id.
        level: ``critical`` reports errors only, ``runtime`` also what fails when it runs, ``all`` everything.
    """
    errors = list(_shape(graph))
    if errors:
        return FlowReport(False, tuple(errors), ())
    flow = Graph(cast("Mapping[str, JSON]", graph))
    errors += [*_structure(flow), *_edges(flow)]
    for node in flow.nodes.values():
        errors += _node(flow, node, tools)
    advisories: list[Finding] = []
    if level in {"runtime", "all"}:
        advisories += _missing_fallbacks(flow, tools)
    if level == "all":
        advisories += _unreachable(flow)
    return FlowReport(not errors, tuple(errors), tuple(advisories))


def problems_of(flow: StoredFlow, tools: Mapping[str, StoredTool]) -> list[str]:
    """Return the errors of a saved flow as text, each with its node."""
    return [f"node {each.node_id}: {each.message}" for each in validate(flow.graph, tools, "critical").errors]


class Graph:
    """A flow's nodes by id and edges by source; the shape has been checked."""

    def __init__(self, graph: Mapping[str, JSON]) -> None:
        self.nodes: dict[str, Node] = {node["id"]: node for node in graph["nodes"]}
        self.edges: list[Edge] = list(graph["edges"])

    def out(self, node_id: str) -> list[Edge]:
        """Return the edges that leave a node, in order."""
        return [edge for edge in self.edges if edge["source"] == node_id]

    @property
    def begin(self) -> str:
        """The id of the first node."""
        return next(str(node["id"]) for node in self.nodes.values() if node["type"] == "begin")


def kind_of(edge: Edge) -> str:
    """Return ``ai``, ``logic`` or ``fallback``."""
    return str(edge["condition"]["type"])


def mode_of(node: Node, tools: Mapping[str, StoredTool]) -> str:
    """Return how a tool or api node waits: a tool's own mode, never the node's."""
    data = members(node.get("data"))
    if node["type"] == "tool":
        tool = tools.get(str(data.get("tool_id")))
        return tool.response_mode if tool else "wait"
    return str(data.get("response_mode") or "wait")


def _shape(graph: JSON) -> Iterator[Finding]:
    if not isinstance(graph, Mapping):
        yield Finding("shape", "", "the flow must be an object with nodes and edges")
        return
    given = cast("Mapping[str, JSON]", graph)
    if unknown := set(given) - {"nodes", "edges"}:
        yield Finding(
            "shape", "", f"{min(unknown)!r} is not a part of a flow", "use nodes and edges, in snake_case"
        )
        return
    nodes: JSON = given.get("nodes")
    edges: JSON = given.get("edges")
    if not is_array(nodes) or not is_array(edges):
        yield Finding("shape", "", "nodes and edges must be lists")
        return
    if len(nodes) > MAX_NODES or len(edges) > 4 * MAX_NODES:
        yield Finding("shape", "", f"a flow has at most {MAX_NODES} nodes and {4 * MAX_NODES} edges")
        return
    seen: set[str] = set()
    for node in map(members, nodes):
        if not isinstance(node.get("id"), str) or not node["id"]:
            yield Finding("shape", "", "every node needs an id")
        elif node["id"] in seen:
            yield Finding("shape", node["id"], "the id is used twice")
        elif node.get("type") not in NODE_TYPES:
            yield Finding("shape", node["id"], f"the type must be one of {', '.join(NODE_TYPES)}")
        elif not isinstance(node.get("data", {}), Mapping):
            yield Finding("shape", node["id"], "data must be an object")
        else:
            seen.add(node["id"])
    for edge in map(members, edges):
        if members(edge.get("condition")).get("type") not in {"ai", "logic", "fallback"}:
            yield Finding("shape", "", "every edge needs a condition of type ai, logic or fallback")
        elif edge.get("source") not in seen or edge.get("target") not in seen:
            yield Finding(
                "shape", str(edge.get("source")), "an edge leads from or to a node that does not exist"
            )


def _structure(flow: Graph) -> Iterator[Finding]:
    begins = [node["id"] for node in flow.nodes.values() if node["type"] == "begin"]
    if len(begins) != 1:
        yield Finding(
            "F11", begins[1] if begins else "", f"a flow has exactly one begin node, not {len(begins)}"
        )
    for node_id, node in flow.nodes.items():
        position = node.get("position")
        if not isinstance(position, Mapping) or not all(
            isinstance(position.get(axis), int | float) for axis in ("x", "y")
        ):
            yield Finding("F11", node_id, "the node needs a position with x and y")
        if extra := set(node.get("data") or {}) - _DATA[node["type"]]:
            rule = "F2" if "response_mode" in extra else "shape"
            hint = "the tool's own response_mode counts" if rule == "F2" else ""
            yield Finding(rule, node_id, f"{min(extra)!r} is not a field of a {node['type']} node", hint)
    for begin in begins:
        edges = flow.out(begin)
        if len(edges) != 1 or kind_of(edges[0]) != "fallback":
            yield Finding("F11", begin, "the begin node has exactly one edge, and it is a fallback")


def _edges(flow: Graph) -> Iterator[Finding]:
    for edge in flow.edges:
        source, target = flow.nodes[edge["source"]], flow.nodes[edge["target"]]
        condition = edge["condition"]
        if target["type"] == "begin":
            yield Finding("F11", target["id"], "no edge may lead into the begin node")
        if source["type"] == "endCall":
            yield Finding("F11", source["id"], "no edge may leave an end node")
        if kind_of(edge) == "ai" and not str(condition.get("prompt") or "").strip():
            yield Finding("edge", source["id"], "an ai condition needs a prompt")
        if kind_of(edge) == "logic":
            yield from _logic(source["id"], condition)
    for node_id, node in flow.nodes.items():
        kinds = [kind_of(edge) for edge in flow.out(node_id)]
        if kinds.count("fallback") > 1:
            yield Finding("edge", node_id, "a node has at most one fallback edge")
        if node["type"] == "condition" and "ai" in kinds:
            yield Finding("edge", node_id, "a condition node has logic edges and a fallback")
        if node["type"] not in {"endCall", "conversation"} and not kinds:
            yield Finding(
                "edge", node_id, "the node leads nowhere", "connect it, or end with an endCall node"
            )


def _logic(node_id: str, condition: Mapping[str, JSON]) -> Iterator[Finding]:
    equations = condition.get("equations")
    if not is_array(equations) or not equations:
        yield Finding("edge", node_id, "a logic condition needs equations")
        return
    if condition.get("operator", "&&") not in {"&&", "||"}:
        yield Finding("edge", node_id, "the operator of a logic condition is && or ||")
    for equation in equations:
        if (
            not isinstance(equation, Mapping)
            or not isinstance(equation.get("variable"), str)
            or equation.get("operator") not in OPERATORS
        ):
            message = f"an equation has a variable and an operator of {', '.join(OPERATORS)}"
            yield Finding("edge", node_id, message)


def _node(flow: Graph, node: Node, tools: Mapping[str, StoredTool]) -> Iterator[Finding]:
    data: Mapping[str, JSON] = node.get("data") or {}
    node_id = node["id"]
    if node["type"] == "conversation" and not str(data.get("prompt") or "").strip():
        yield Finding("node", node_id, "a conversation node needs a prompt")
    if node["type"] not in {"tool", "api"}:
        return
    if node["type"] == "tool":
        if not data.get("tool_id"):
            yield Finding("F1", node_id, "the tool node has no tool_id")
        elif str(data["tool_id"]) not in tools:
            yield Finding(
                "F1", node_id, f"the tool {data['tool_id']} does not exist", "choose an existing tool"
            )
        if not isinstance(data.get("arguments", {}), Mapping):
            yield Finding("node", node_id, "arguments must be an object")
    else:
        yield from _inline(node_id, data)
    yield from _variables(node_id, data.get("response_variables", []))
    kinds = [kind_of(edge) for edge in flow.out(node_id)]
    if mode_of(node, tools) == "fire_and_forget":
        if data.get("response_variables"):
            hint = "remove the variables or use response_mode wait"
            yield Finding("F3", node_id, "fire_and_forget cannot be combined with response variables", hint)
        if "logic" in kinds or ("ai" in kinds and "fallback" in kinds) or len(kinds) > 1:
            hint = "leave exactly one edge or use response_mode wait"
            yield Finding(
                "F4", node_id, "fire_and_forget cannot be combined with transitions by result", hint
            )
    elif "logic" in kinds:
        hint = "branch in a condition node after this one"
        yield Finding("F9", node_id, "logic edges belong to condition nodes", hint)


def _inline(node_id: str, data: Mapping[str, JSON]) -> Iterator[Finding]:
    configuration = data.get("api_configuration")
    if not isinstance(configuration, Mapping):
        yield Finding("F10", node_id, "the api node needs an api_configuration")
        return
    given = cast("Mapping[str, JSON]", configuration)
    known = {"url", "method", "headers", "body", "timeout_seconds"}
    if unknown := set(given) - known:
        yield Finding(
            "F10", node_id, f"{min(unknown)!r} is not a field here", "keep secrets in a stored tool"
        )
    if data.get("response_mode", "wait") not in rules.RESPONSE_MODES:
        yield Finding("F10", node_id, f"response_mode must be one of {', '.join(rules.RESPONSE_MODES)}")
    if given.get("body") is not None and not isinstance(given["body"], Mapping):
        yield Finding("F10", node_id, "the body must be an object")
    try:
        rules.check_url(fill_variables(str(given.get("url") or ""), {}), {})
        rules.check_method(given.get("method"))
        rules.check_headers(given.get("headers", {}), auth=False)
        rules.check_seconds(given.get("timeout_seconds", 30))
    except rules.Refusal as refusal:
        yield Finding("F10", node_id, refusal.message)


def _variables(node_id: str, variables: JSON) -> Iterator[Finding]:
    if not is_array(variables):
        yield Finding("node", node_id, "response_variables must be a list")
        return
    for variable in map(members, variables):
        if not _NAME.fullmatch(str(variable.get("variable_name") or "")):
            yield Finding("node", node_id, "a response variable needs a variable_name in snake_case")
            continue
        try:
            parse_path(str(variable.get("json_path") or ""))
        except Invalid as error:
            yield Finding("node", node_id, error.message, "use $, .name, ['name'], [n] and [*]")


def _missing_fallbacks(flow: Graph, tools: Mapping[str, StoredTool]) -> Iterator[Finding]:
    for node_id, node in flow.nodes.items():
        if node["type"] in {"tool", "api"} and mode_of(node, tools) == "wait":
            kinds = [kind_of(edge) for edge in flow.out(node_id)]
            if "fallback" not in kinds:
                message = "a failure of the call has no way on"
                yield Finding("unconnected_fallback_transition", node_id, message, "add a fallback edge")


def _unreachable(flow: Graph) -> Iterator[Finding]:
    starts = [node_id for node_id, node in flow.nodes.items() if node["type"] == "begin"]
    seen = set(starts)
    while starts:
        for edge in flow.out(starts.pop()):
            if edge["target"] not in seen:
                seen.add(edge["target"])
                starts.append(edge["target"])
    for node_id in flow.nodes:
        if node_id not in seen:
            yield Finding("unreachable_node", node_id, "no way leads to the node")
