"""The stored tools: kept, changed, tried out, imported and given to agents and sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import msgspec
import trio

from actors.agent.team import Team
from actors.agent.toolbox import ToolsetSpec
from actors.apitools import edit
from actors.apitools.caller import Caller
from actors.apitools.documents import Documents
from actors.apitools.history import History
from actors.apitools.messages import Attachment, Page, Performed, StoredFlow, StoredTool
from actors.apitools.vault import Vault
from actors.errors import Conflict, Invalid, NotFound
from actors.ids import new_uuid
from actors.journal.log import EventLog
from actors.tools.http_api.call import ApiCall
from actors.tools.http_api.curl import call_from_curl
from actors.tools.http_api.openapi import calls_from_openapi, parse_document
from actors.tools.http_api.rules import Refusal
from actors.tools.http_api.toolset import ApiTool, system_variables
from actors.tools.tool import Tool, ToolContext, ToolResult

JSON = Any
ATTACHED = "api_tools"
"""The name of the toolset with what was attached."""
FRESH = 0.1
"""Seconds for which a look at the attachments is good: a busy server starts hundreds of runs in them."""
MAX_ATTACHED = 64
FlowCheck = Callable[[StoredFlow, Mapping[str, StoredTool]], Sequence[str]]
"""Says what of a flow would be wrong with the tools given."""


class ToolInUse(Conflict):
    """An agent, session or flow still uses the tool."""

    code = "tool_in_use"


class ApiTools:
    """See the module.

    Args:
        log: The journal.
        vault: Seals credentials.
        caller: Makes the calls.
        history: Where calls are recorded.
        clock: Seconds since the epoch.
        check_flow: Tells whether a flow stays valid when a tool changes.
    """

    def __init__(
        self,
        log: EventLog,
        vault: Vault,
        caller: Caller,
        history: History,
        clock: Callable[[], float],
        check_flow: FlowCheck,
    ) -> None:
        self.history = history
        self.caller = caller
        self.flows: Documents[StoredFlow] = Documents(log, "flow", StoredFlow, clock)
        self.lock = trio.Lock()
        """Held while tools, attachments and flows that depend on each other change."""
        self._tools: Documents[StoredTool] = Documents(log, "tool", StoredTool, clock)
        self._attachments: Documents[Attachment] = Documents(log, "attachment", Attachment, clock)
        self._vault = vault
        self._clock = clock
        self._check_flow = check_flow
        self._known: Mapping[str, tuple[str, ...]] = {}
        self._looked = float("-inf")

    # --- the resource -----------------------------------------------------------------------------------------------

    async def create(self, body: JSON) -> StoredTool:
        """Create a tool. Raises: Refusal naming the field."""
        tool_id = new_uuid()
        tool = edit.new_tool(body, tool_id, self._now(), lambda text: self._vault.seal(text, tool_id))
        await self._tools.save(tool_id, tool, name=tool.name, created_at=tool.created_at)
        return tool

    async def get(self, tool_id: str) -> StoredTool:
        """Return a tool. Raises: NotFound."""
        return await self._tools.get(tool_id)

    async def page(
        self, *, limit: int = 50, cursor: str = "", descending: bool = True, search: str = ""
    ) -> Page:
        """Return some of the tools. Raises: Invalid for a limit out of 1 to 100 or a foreign cursor."""
        if not 1 <= limit <= 100:
            raise Refusal("limit", "must be from 1 to 100")
        return await self._tools.page(limit=limit, cursor=cursor, descending=descending, search=search)

    async def patch(self, tool_id: str, body: JSON) -> StoredTool:
        """Change a tool; agents use it as it is now from their next run on.

        Raises:
            NotFound: no such tool.
            Refusal: a field is not acceptable.
            Conflict: a flow depends on what would change, or an agent has another tool of the new name.
        """
        async with self.lock:
            old = await self._tools.get(tool_id)
            new = edit.changed_tool(old, body, self._now(), lambda text: self._vault.seal(text, tool_id))
            if not body:
                return old
            if new.name != old.name:
                await self._check_names(tool_id, new.name)
            await self._check_flows(new)
            await self._tools.save(tool_id, new, name=new.name, created_at=new.created_at)
            return new

    async def delete(self, tool_id: str) -> None:
        """Delete a tool. Raises: NotFound, ToolInUse naming who uses it."""
        async with self.lock:
            await self._tools.get(tool_id)
            owners = [each.owner for each in await self._attachments.all() if tool_id in each.tool_ids]
            flows = [flow.name for flow in await self.flows.all() if tool_id in tools_of(flow.graph)]
            if owners or flows:
                used = ", ".join([*owners, *(f"flow {name}" for name in flows)])
                raise ToolInUse(f"the tool is used by {used}", agents=owners, flows=flows)
            await self._tools.delete(tool_id)

    async def try_out(
        self, tool_id: str, arguments: Mapping[str, JSON], variables: Mapping[str, JSON]
    ) -> Performed:
        """Make a call for real, wait for its answer whatever the tool's mode, and record nothing."""
        return await self.caller.try_out(self.call_of(await self.get(tool_id)), arguments, variables)

    def draft(self, *, curl: str = "", openapi: JSON = None, operation_id: str = "", base: str = "") -> JSON:
        """Return the body that would create a tool, or a list of them; nothing is saved.

        Args:
            curl: A curl command line.
            openapi: An OpenAPI 3 document, as an object or as JSON or YAML text.
            operation_id: The one operation wanted; empty for all.
            base: Where the document is from, for servers given relative to it.

        Raises:
            Invalid: not exactly one source, or one that cannot be read.
        """
        if bool(curl) == (openapi is not None):
            raise Refusal("curl", "give exactly one of curl and openapi")
        if curl:
            return edit.draft(call_from_curl(curl))
        text = openapi.encode() if isinstance(openapi, str) else _as_json(openapi)
        calls = calls_from_openapi(parse_document(text), base)
        if not operation_id:
            return [edit.draft(call) for call in calls]
        found = next((call for call in calls if call.name == operation_id), None)
        if found is None:
            raise Refusal("operation_id", "is not in the document", [call.name for call in calls][:50])
        return edit.draft(found)

    def call_of(self, tool: StoredTool) -> ApiCall:
        """Return a tool with its secret opened. Raises: Unavailable when it cannot be."""
        return edit.as_call(tool, self._vault.open(tool.sealed, tool.id) if tool.sealed else "")

    async def find_call(self, tool_id: str) -> ApiCall:
        """Return a tool by id, ready to be called. Raises: NotFound, Unavailable."""
        return self.call_of(await self._tools.get(tool_id))

    # --- attachments ------------------------------------------------------------------------------------------------

    async def attach(self, owner: str, tool_ids: Sequence[str]) -> Attachment:
        """Give exactly these tools to ``agent/<source>``, ``agent/<source>/<name>`` or ``session/<id>``.

        Raises:
            NotFound: one of the tools does not exist.
            Invalid: two have one name, or there are too many.
        """
        if len(tool_ids) > MAX_ATTACHED:
            raise Refusal("tool_ids", f"must have at most {MAX_ATTACHED} entries")
        async with self.lock:
            names: dict[str, str] = {}
            for tool_id in dict.fromkeys(tool_ids):
                name = (await self._tools.get(tool_id)).name
                if name in names:
                    raise Refusal("tool_ids", f"there are two tools called {name!r}")
                names[name] = tool_id
            attachment = Attachment(owner=owner, tool_ids=tuple(dict.fromkeys(tool_ids)))
            await self._attachments.save(owner, attachment)
            self._looked = float("-inf")
            return attachment

    async def attached(self, owner: str) -> Attachment:
        """Return what an agent or session was given."""
        try:
            return await self._attachments.get(owner)
        except NotFound:
            return Attachment(owner=owner)

    async def equip(self, team: Team, source: str, session_id: str) -> None:
        """Add the toolset of attached tools to the agents of a session's team that have any."""
        if trio.current_time() - self._looked > FRESH:
            found = await self._attachments.all()
            self._known = {each.owner: each.tool_ids for each in found if each.tool_ids}
            self._looked = trio.current_time()
        if not self._known:
            return
        for agent in team.agents:
            owners = (f"agent/{source}/{agent}", f"agent/{source}", f"session/{session_id}")
            if any(owner in self._known for owner in owners):
                team.toolbox(agent).attach(
                    ToolsetSpec(ATTACHED, partial(AttachedTools, self, owners, session_id))
                )

    async def tools_for(self, owners: Sequence[str]) -> list[StoredTool]:
        """Return the tools given to any of these, without those that were deleted; of two names the first counts."""
        found: dict[str, StoredTool] = {}
        for owner in owners:
            for tool_id in (await self.attached(owner)).tool_ids:
                try:
                    tool = await self._tools.get(tool_id)
                except NotFound:
                    continue
                found.setdefault(tool.name, tool)
        return list(found.values())

    async def known_tools(self) -> dict[str, StoredTool]:
        """Return every tool by id."""
        return {tool.id: tool for tool in await self._tools.all()}

    # --- inside -----------------------------------------------------------------------------------------------------

    async def _check_names(self, tool_id: str, name: str) -> None:
        for attachment in await self._attachments.all():
            if tool_id in attachment.tool_ids:
                for other in attachment.tool_ids:
                    if other != tool_id and (await self._tools.get(other)).name == name:
                        raise Conflict(f"{attachment.owner} has another tool called {name!r}", field="name")

    async def _check_flows(self, new: StoredTool) -> None:
        tools = {**await self.known_tools(), new.id: new}
        problems: list[str] = []
        for flow in await self.flows.all():
            if new.id in tools_of(flow.graph):
                problems += [f"flow {flow.name}: {problem}" for problem in self._check_flow(flow, tools)]
        if problems:
            raise Conflict(
                f"saved flows depend on this: {'; '.join(problems)}", field="response_mode", flows=problems
            )

    def _now(self) -> int:
        return int(self._clock() * 1000)


class AttachedTools:
    """The toolset of what is attached; looked up when a run begins, and the same until it ends."""

    name = ATTACHED
    instruction = ""

    def __init__(self, service: ApiTools, owners: Sequence[str], session_id: str) -> None:
        self._service = service
        self._owners = owners
        self._session_id = session_id
        self._tools: list[Tool] = []

    async def start(self) -> None:
        """Look the tools up. Raises: Unavailable when a secret cannot be opened."""
        self._tools = [
            ApiTool(self._service.call_of(tool), partial(self._perform, tool.id))
            for tool in await self._service.tools_for(self._owners)
        ]

    async def aclose(self) -> None:
        """Forget the tools: their secrets are not needed between runs."""
        self._tools = []

    def tools(self) -> Sequence[Tool]:
        """Return the tools."""
        return self._tools

    async def _perform(
        self, tool_id: str, call: ApiCall, arguments: Mapping[str, JSON], context: ToolContext
    ) -> ToolResult:
        done = await self._service.caller.perform(
            tool_id,
            call,
            arguments,
            system_variables(context),
            session_id=self._session_id,
            tool_call_id=context.call_id,
        )
        return ToolResult(done.text, is_error=done.is_error)


def tools_of(graph: Mapping[str, JSON]) -> set[str]:
    """Return the ids of the tools a flow's nodes use."""
    nodes = cast("list[Mapping[str, JSON]]", graph.get("nodes") or [])
    return {str(node.get("data", {}).get("tool_id")) for node in nodes if node.get("type") == "tool"}


def _as_json(value: JSON) -> bytes:
    if not isinstance(value, Mapping):
        raise Invalid("openapi: must be an object or text", field="openapi")
    return msgspec.json.encode(value)
