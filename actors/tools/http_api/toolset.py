"""The ``api`` and ``openapi`` toolsets of agent files, and the tool that makes one declared call."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import structs

from actors.errors import Invalid
from actors.ids import wall_clock
from actors.tools.egress import Egress
from actors.tools.expand import expand, expand_all
from actors.tools.http_api.answer import render
from actors.tools.http_api.call import ApiCall, BadArguments
from actors.tools.http_api.executor import Executor, rejection
from actors.tools.http_api.openapi import calls_from_openapi, parse_document
from actors.tools.http_api.request import build_request
from actors.tools.options import ApiOptions, OpenApiOptions
from actors.tools.tool import JSON, Annotations, Definition, Tool, ToolContext, ToolError, ToolResult

DOCUMENT_LIMIT = 10_000_000
"""Bytes of an OpenAPI document."""
Perform = Callable[[ApiCall, Mapping[str, JSON], ToolContext], Awaitable[ToolResult]]


class ApiTool:
    """One declared call as a tool.

    Args:
        call: The endpoint.
        perform: Makes it.
        output_schema: What its answer looks like, for clients.
    """

    def __init__(
        self, call: ApiCall, perform: Perform, output_schema: Mapping[str, JSON] | None = None
    ) -> None:
        self.call = call
        self._perform = perform
        self._definition = Definition(
            name=call.name,
            description=call.description,
            parameters=call.parameters,
            category="api",
            annotations=Annotations(open_world_hint=True, read_only_hint=False),
            output_schema=output_schema,
            lenient=True,
        )

    @property
    def definition(self) -> Definition:
        """The tool as models see it."""
        return self._definition

    async def run(self, arguments: Mapping[str, JSON], context: ToolContext) -> ToolResult:
        """Make the call. Never raises ToolError: failures are results the model can act on."""
        return await self._perform(self.call, arguments, context)


def system_variables(context: ToolContext) -> dict[str, Any]:
    """Return the dynamic variables every call knows."""
    return {
        "current_time": datetime.fromtimestamp(wall_clock(), UTC).isoformat(timespec="seconds"),
        "call_id": context.session_id,
        "agent_id": context.agent,
    }


def direct(executor: Executor) -> Perform:
    """Return what makes calls and waits for their answers; nothing is recorded."""

    async def perform(call: ApiCall, arguments: Mapping[str, JSON], context: ToolContext) -> ToolResult:
        call = structs.replace(call, url=expand(call.url, context), headers=expand_all(call.headers, context))
        try:
            request = build_request(call, arguments, system_variables(context))
        except BadArguments as error:
            return render(rejection(error))
        return render(await executor.send(request, call.seconds), request.secrets)

    return perform


class ApiToolset:
    """The ``api`` toolset: the endpoint of ``api_config`` as a tool."""

    name = "api"
    instruction = ""

    def __init__(self, options: ApiOptions, egress: Egress) -> None:
        config = options.api_config
        for name in config.required:
            if name not in config.args:
                raise Invalid(f"api tool '{config.name}': 'required' names {name!r}, which is not in 'args'")
        url = re.sub(r"\$\{([A-Za-z_]\w*)\}", lambda match: "{" + match[1] + "}", config.endpoint)
        call = ApiCall(
            name=config.name,
            description=config.instruction,
            url=url,
            method=config.method,
            headers=config.headers,
            seconds=options.timeout,
            parameters={"type": "object", "properties": config.args, "required": config.required},
        )
        self._tools = [ApiTool(call, direct(Executor(egress)), config.output_schema)]

    async def start(self) -> None:
        """Nothing to connect."""

    async def aclose(self) -> None:
        """Nothing to close."""

    def tools(self) -> Sequence[Tool]:
        """Return the one tool."""
        return self._tools


class OpenApiToolset:
    """The ``openapi`` toolset: a tool for each operation of a document, which is fetched when a run begins."""

    name = "openapi"
    instruction = ""

    def __init__(self, options: OpenApiOptions, egress: Egress) -> None:
        self._options = options
        self._egress = egress
        self._perform = direct(Executor(egress))
        self._tools: list[Tool] = []

    async def start(self) -> None:
        """Fetch the document. Raises: ToolError when there is none, Invalid when it is not usable."""
        if self._tools:
            return
        response = await self._egress.request(
            "GET",
            self._options.url,
            seconds=self._options.timeout,
            headers={"accept": "application/json, application/yaml, */*;q=0.5"},
            limit=DOCUMENT_LIMIT,
        )
        if response.status != 200:
            raise ToolError(f"{self._options.url}: the OpenAPI document came with status {response.status}")
        calls = calls_from_openapi(parse_document(response.body), response.url)
        self._tools = [
            ApiTool(
                structs.replace(call, headers=self._options.headers, seconds=self._options.timeout),
                self._perform,
            )
            for call in calls
        ]

    async def aclose(self) -> None:
        """Nothing to close: the document is kept for the session's next run."""

    def tools(self) -> Sequence[Tool]:
        """Return a tool for each operation."""
        return self._tools
