"""A program written with the official Python SDK; run by a test as a process of its own, it prints what it saw."""

from __future__ import annotations

import asyncio  # noqa: TID251 - the SDK is written for it
import json
import logging
import sys
from typing import Any

from copilot import CopilotClient, RuntimeConnection
from copilot.session import PermissionHandler
from copilot.tools import Tool, ToolResult

logging.disable(logging.CRITICAL)


async def shout(call: Any) -> ToolResult:
    return ToolResult(text_result_for_llm=str(call.arguments["text"]).upper())


TOOL = Tool(
    name="shout",
    description="Shout",
    handler=shout,
    parameters={"type": "object", "properties": {"text": {"type": "string"}}},
)


def connection(mode: str, argument: list[str]) -> Any:
    if mode == "uri":
        return RuntimeConnection.for_uri(argument[0])
    make = RuntimeConnection.for_stdio if mode == "stdio" else RuntimeConnection.for_tcp
    return make(path=argument[0], args=argument[1:])


async def main() -> None:
    seen: dict[str, Any] = {}
    client: Any = CopilotClient(connection=connection(sys.argv[1], sys.argv[2:]))
    await client.start()
    hooked: list[str] = []

    async def before(given: Any, _context: Any) -> Any:
        hooked.append(given["toolName"])

    session = await client.create_session(
        on_permission_request=PermissionHandler.approve_all,
        tools=[TOOL],
        streaming=True,
        hooks={"on_pre_tool_use": before},
    )
    types: list[str] = []
    session.on(lambda event: types.append(event.type.value))
    answer = await session.send_and_wait('call shout {"text":"hi"}')
    seen["tool"], seen["hooked"] = answer.data.content, hooked
    await session.send("slow one")
    await session.send("second")
    await session.send("steer", mode="immediate")
    seen["queue"] = (await session.send_and_wait("third")).data.content
    await session.send("hang")
    await asyncio.sleep(0.2)
    await session.abort()
    seen["after abort"] = (await session.send_and_wait("fine?")).data.content
    await session.disconnect()
    again = await client.resume_session(
        session.session_id, on_permission_request=PermissionHandler.approve_all
    )
    seen["resumed"] = (await again.send_and_wait("back")).data.content
    events = [event.type.value for event in await again.get_events()]
    seen["turns"] = [events.count("assistant.turn_start"), events.count("assistant.turn_end")]
    seen["types"] = types
    await client.stop()
    print(json.dumps(seen))


asyncio.run(main())
