"""The ``user_prompt`` and ``open_url`` toolsets: questions to the person, and pages for them to visit."""

# ruff: noqa: D417 - docstrings of tools are written for models, who do not see the context

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from actors.tools.builtin.toolset import WRITES, Builtin
from actors.tools.egress import check_url
from actors.tools.expand import expand
from actors.tools.options import OpenUrlOptions, UserPromptOptions
from actors.tools.tool import Elicitation, ElicitationReply, ToolContext, ToolError, ToolResult


class UserPrompt(Builtin):
    """Asks the person and waits."""

    name = "user_prompt"
    text = "Use user_prompt only for what you cannot find out yourself."

    def __init__(self, _options: UserPromptOptions) -> None:
        super().__init__()
        self.offer(self.user_prompt)

    async def user_prompt(
        self, message: str, context: ToolContext, title: str = "", schema: dict[str, Any] | None = None
    ) -> ToolResult:
        """Ask the user a question and wait for the answer, given as {action, content}.

        Args:
            message: The question.
            title: A short heading.
            schema: JSON Schema of the answer: an object with simple properties, or a simple type.
        """
        if not message.strip():
            raise ToolError("the message is empty")
        question = Elicitation(message, title=title, schema=_as_object(schema))
        return reply_result(await context.elicit(question))


class OpenUrl(Builtin):
    """Asks the person to visit a page."""

    name = "open_url"

    def __init__(self, options: OpenUrlOptions) -> None:
        super().__init__()
        self._options = options
        self.offer(self.open_configured if options.url else self.open_url, WRITES, name="open_url")

    async def open_configured(self, context: ToolContext) -> ToolResult:
        """Ask the user to open the page that belongs to this tool."""
        return await self._open(expand(self._options.url, context), context)

    async def open_url(self, url: str, context: ToolContext) -> ToolResult:
        """Ask the user to open a page in their browser.

        Args:
            url: An http or https URL.
        """
        return await self._open(url, context)

    async def _open(self, url: str, context: ToolContext) -> ToolResult:
        check_url(url, allow_private=True)
        title = self._options.name or "Open a page"
        return reply_result(
            await context.elicit(Elicitation(f"Open {url}", mode="url", title=title, url=url))
        )


def _as_object(schema: dict[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the schema with a simple type wrapped in an object, since an answer is one."""
    if not schema or schema.get("type") in {None, "object"}:
        return schema
    return {"type": "object", "properties": {"response": schema}, "required": ["response"]}


def reply_result(reply: ElicitationReply) -> ToolResult:
    """Return the person's answer as a result: ``{action, content?}``."""
    answer: dict[str, Any] = {"action": reply.action}
    if reply.action == "accept":
        answer["content"] = dict(reply.content)
    return ToolResult(msgspec.json.encode(answer).decode(), structured=answer)
