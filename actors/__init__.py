"""Greenroom's library: sessions with LLM agents as trio actors over a durable event log. Knows no HTTP server."""

from actors import errors
from actors.agents import Agent
from actors.runtime import Runtime, open_runtime
from actors.session.session import RunEvents, RunFailed, Session
from actors.settings import Settings
from actors.tools.function import tool
from actors.tools.tool import ToolContext, ToolError, ToolResult

__all__ = [
    "Agent",
    "RunEvents",
    "RunFailed",
    "Runtime",
    "Session",
    "Settings",
    "ToolContext",
    "ToolError",
    "ToolResult",
    "errors",
    "open_runtime",
    "tool",
]
