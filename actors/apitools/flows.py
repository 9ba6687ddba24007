"""The stored flows and their runs: checked before they are saved, and started in sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import trio
from msgspec import structs

from actors.agent.context import complete
from actors.agent.team import Team
from actors.apitools import messages as m
from actors.apitools.flow_rules import FlowInvalid, FlowReport, Graph, Level, validate
from actors.apitools.service import ApiTools
from actors.errors import Conflict
from actors.ids import new_uuid
from actors.kernel import Address, Ref, System
from actors.models.provider import Message
from actors.tools.http_api.rules import Refusal

JSON = Any
KIND = "flow"
CHOICE_SECONDS = 60.0
_CHOICE = (
    "You route a conversation. Read what the person said and the numbered conditions. Answer with the number of the "
    "condition that is met and nothing else; answer 0 when none is."
)


class Flows:
    """See the module.

    Args:
        tools: The stored tools, which flows refer to.
        clock: Seconds since the epoch.

    Attributes:
        system: Where the runs' actors live; set before the first run.
    """

    def __init__(self, tools: ApiTools, clock: Callable[[], float]) -> None:
        self.system: System
        self._tools = tools
        self._clock = clock

    async def validate(self, graph: JSON, level: Level = "all") -> FlowReport:
        """Return what is wrong with a graph, and what its author should know; nothing is saved."""
        return validate(graph, await self._tools.known_tools(), level)

    async def create(self, name: JSON, graph: JSON) -> m.StoredFlow:
        """Save a new flow. Raises: Refusal for the name, FlowInvalid for the graph."""
        async with self._tools.lock:
            await self._check(graph)
            now = int(self._clock() * 1000)
            flow = m.StoredFlow(
                id=new_uuid(), name=_name(name), graph=graph, revision=1, created_at=now, updated_at=now
            )
            await self._tools.flows.save(flow.id, flow, name=flow.name, created_at=now)
            return flow

    async def get(self, flow_id: str) -> m.StoredFlow:
        """Return a flow. Raises: NotFound."""
        return await self._tools.flows.get(flow_id)

    async def page(self, *, limit: int = 50, cursor: str = "") -> m.Page:
        """Return some of the flows, newest first. Raises: Invalid for a limit out of 1 to 100."""
        if not 1 <= limit <= 100:
            raise Refusal("limit", "must be from 1 to 100")
        return await self._tools.flows.page(limit=limit, cursor=cursor, descending=True, search="")

    async def change(self, flow_id: str, name: JSON, graph: JSON, expected: int) -> m.StoredFlow:
        """Change a flow's name or graph (``None`` keeps it); ``expected`` is the revision the client has seen.

        Raises:
            NotFound, Refusal, FlowInvalid: as for :meth:`get` and :meth:`create`.
            RevisionConflict: the flow has another revision.
        """
        async with self._tools.lock:
            old = await self._tools.flows.get(flow_id)
            if expected != old.revision:
                raise RevisionConflict(
                    f"the flow has revision {old.revision}, not {expected}", revision=old.revision
                )
            if graph is not None:
                await self._check(graph)
            new = structs.replace(
                old,
                name=old.name if name is None else _name(name),
                graph=old.graph if graph is None else graph,
                revision=old.revision + 1,
                updated_at=int(self._clock() * 1000),
            )
            await self._tools.flows.save(flow_id, new, name=new.name, created_at=new.created_at)
            return new

    async def delete(self, flow_id: str) -> None:
        """Delete a flow; runs that have begun go on. Raises: NotFound."""
        async with self._tools.lock:
            await self._tools.flows.get(flow_id)
            await self._tools.flows.delete(flow_id)

    async def start(
        self, flow_id: str, *, session_id: str, source: str, agent: str, variables: Mapping[str, JSON]
    ) -> m.FlowRun:
        """Begin a run of a flow in a session and return it.

        Raises:
            NotFound: no such flow.
        """
        flow = await self._tools.flows.get(flow_id)
        run = m.FlowRun(
            id=new_uuid(),
            flow_id=flow_id,
            graph=flow.graph,
            session_id=session_id,
            source=source,
            agent=agent,
            state="running",
            node=Graph(flow.graph).begin,
            variables=variables,
            created_at=int(self._clock() * 1000),
        )
        return await self._ref(run.id).ask(m.StartFlow(run=run))

    async def run(self, run_id: str) -> m.FlowRun:
        """Return a run as it is. Raises: NotFound."""
        return await self._ref(run_id).ask(m.GetFlowRun())

    async def say(self, run_id: str, content: str) -> m.FlowRun:
        """Say something to a run that waits. Raises: NotFound, Conflict."""
        return await self._ref(run_id).ask(m.SayToFlow(content=content))

    async def cancel(self, run_id: str) -> m.FlowRun:
        """End a run. Raises: NotFound."""
        return await self._ref(run_id).ask(m.CancelFlow())

    def _ref(self, run_id: str) -> Ref[Any]:
        ref: Ref[Any] = self.system.ref(Address(KIND, run_id))
        return ref

    async def _check(self, graph: JSON) -> None:
        report = await self.validate(graph, "critical")
        if not report.valid:
            first = report.errors[0]
            where = f"node {first.node_id}: " if first.node_id else ""
            raise FlowInvalid(
                f"{where}{first.message}", errors=[structs.asdict(each) for each in report.errors]
            )


class RevisionConflict(Conflict):
    """The document changed since the client read it."""

    code = "revision_conflict"


async def choose(team: Team, agent: str, conditions: list[str], said: str) -> int:
    """Ask an agent's model which condition a text meets; return its index, -1 for none.

    Raises:
        ModelError: the model failed.
    """
    listing = "\n".join(f"{number}. {text}" for number, text in enumerate(conditions, 1))
    model = team.bind(agent or team.default)
    request = model.request(
        [Message("system", _CHOICE), Message("user", f"Conditions:\n{listing}\n\nThe person said:\n{said}")],
        max_tokens=16,
        thinking="none",
        response_schema=None,
    )
    with trio.move_on_after(CHOICE_SECONDS):
        answer = (await complete(model, request)).message.content
        digits = "".join(char if char.isdigit() else " " for char in answer).split()
        return int(digits[0]) - 1 if digits and 1 <= int(digits[0]) <= len(conditions) else -1
    return -1


def _name(name: JSON) -> str:
    if not isinstance(name, str) or not 1 <= len(name.strip()) <= 100:
        raise Refusal("name", "must have 1 to 100 characters")
    return name.strip()
