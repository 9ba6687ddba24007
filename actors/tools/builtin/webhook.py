"""The ``webhook`` toolset: one message to a chat service or any HTTP endpoint."""

# ruff: noqa: D417 - docstrings of tools are written for models, who do not see the context

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from actors.errors import Invalid
from actors.tools.builtin.toolset import Builtin
from actors.tools.egress import Egress, Resolver, resolve
from actors.tools.expand import expand, expand_all
from actors.tools.options import WebhookOptions
from actors.tools.tool import JSON, Annotations, ToolContext, ToolError

_BODIES: Mapping[str, Callable[[str, str, str, str], Mapping[str, JSON]]] = {
    "discord": lambda message, _2, _3, _chat: {"content": message},
    "generic": lambda message, value2, value3, _: {"message": message, "value2": value2, "value3": value3},
    "ifttt": lambda message, value2, value3, _: {"value1": message, "value2": value2, "value3": value3},
    "mattermost": lambda message, _2, _3, _chat: {"text": message},
    "slack": lambda message, _2, _3, _chat: {"text": message},
    "teams": lambda message, _2, _3, _chat: {"text": message},
    "telegram": lambda message, _2, _3, chat: {"chat_id": chat, "text": message},
}


class Webhook(Builtin):
    """Sends to the configured destination only.

    Raises:
        Invalid: the provider is unknown.
    """

    name = "webhook"

    def __init__(self, options: WebhookOptions, resolver: Resolver = resolve) -> None:
        super().__init__()
        self._options = options
        self._provider = options.webhook_config.provider or "generic"
        if self._provider not in _BODIES:
            known = ", ".join(sorted(_BODIES))
            raise Invalid(f"webhook provider '{self._provider}' is unknown (known: {known})")
        self._egress = Egress(allow_private=options.allow_private_ips, resolver=resolver)
        self.offer(self.send_webhook, Annotations(open_world_hint=True))

    async def send_webhook(
        self, message: str, context: ToolContext, value2: str = "", value3: str = ""
    ) -> str:
        """Send a message to the configured destination.

        Args:
            message: The text.
            value2: A second value, for destinations that take one.
            value3: A third value, for destinations that take one.
        """
        config = self._options.webhook_config
        body = _BODIES[self._provider](message, value2, value3, expand(config.chat_id, context))
        response = await self._egress.request(
            "POST",
            expand(config.url, context),
            seconds=self._options.timeout,
            headers={"content-type": "application/json", **expand_all(config.headers, context)},
            body=msgspec.json.encode({name: value for name, value in body.items() if value != ""}),
        )
        if response.status >= 400:
            text = response.body[:500].decode("utf-8", "replace")
            raise ToolError(f"the destination answered with status {response.status}: {text}")
        return "Message sent."
