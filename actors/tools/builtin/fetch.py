"""The ``fetch`` toolset: web pages as text, Markdown or HTML, within the egress guard."""

# ruff: noqa: D417 - docstrings of tools are written for models, who do not see the context

from __future__ import annotations

import re
from functools import partial
from typing import Literal

import trio

from actors.tools.builtin.toolset import Builtin
from actors.tools.egress import Egress, Resolver, Response, host_rules, resolve
from actors.tools.expand import expand_all
from actors.tools.html_text import to_markdown, to_text
from actors.tools.options import FetchOptions
from actors.tools.tool import Annotations, ToolContext, ToolError, ToolResult

MAX_URLS = 20
MAX_SECONDS = 300
_CHARSET = re.compile(r"charset=[\"']?([\w.:-]+)", re.IGNORECASE)
_AGENT = "Mozilla/5.0 (compatible; Greenroom)"

Format = Literal["text", "markdown", "html"]


class Fetch(Builtin):
    """Fetches URLs. It is not read-only for the policy: a URL can carry data out, so a call asks."""

    name = "fetch"

    def __init__(self, options: FetchOptions, resolver: Resolver = resolve) -> None:
        super().__init__()
        self._options = options
        self._egress = Egress(
            allow_private=options.allow_private_ips,
            resolver=resolver,
            accept_host=host_rules(options.allowed_domains, options.blocked_domains),
        )
        self.offer(self.fetch, Annotations(open_world_hint=True), rename={"seconds": "timeout"})

    async def fetch(
        self,
        urls: list[str],
        context: ToolContext,
        seconds: float | None = None,
        format: Format = "markdown",  # noqa: A002
    ) -> ToolResult:
        """Fetch web pages or other text over HTTP.

        Args:
            urls: Absolute http or https URLs.
            seconds: Seconds to wait for all of them together.
            format: How to return HTML pages; other text is returned as it is.
        """
        if not urls:
            raise ToolError("no URL was given")
        if len(urls) > MAX_URLS:
            raise ToolError(f"at most {MAX_URLS} URLs can be fetched at once")
        deadline = trio.current_time() + min(max(seconds or self._options.timeout, 1), MAX_SECONDS)
        headers = {"user-agent": _AGENT, "accept": "text/html, text/*, application/json, */*;q=0.5"}
        headers |= {name.lower(): value for name, value in expand_all(self._options.headers, context).items()}
        parts: list[str] = []
        failed = 0
        for url in urls:
            try:
                response = await self._egress.request(
                    "GET", url, seconds=max(deadline - trio.current_time(), 0.001), headers=headers
                )
                text = await trio.to_thread.run_sync(
                    partial(_render, response, format), abandon_on_cancel=True
                )
                if response.status >= 400:
                    failed += 1
                    text = f"HTTP status {response.status}\n{text}"
            except ToolError as error:
                failed += 1
                text = f"Error: {error.message}"
            parts.append(text if len(urls) == 1 else f"=== {url} ===\n{text}")
        return ToolResult("\n\n".join(parts), is_error=failed == len(urls))


def _render(response: Response, wanted: Format) -> str:
    media_type = response.headers.get("content-type", "")
    kind = media_type.partition(";")[0].strip().lower()
    if b"\0" in response.body[:1024] and "charset=utf-16" not in media_type.lower():
        raise ToolError(f"{response.url}: not text but {kind or 'binary data'} ({len(response.body)} bytes)")
    text = _decode(response.body, media_type)
    is_page = kind in {"text/html", "application/xhtml+xml"} or (not kind and text.lstrip()[:1] == "<")
    if not is_page or wanted == "html":
        return text
    return to_markdown(text, response.url) if wanted == "markdown" else to_text(text)


def _decode(body: bytes, media_type: str) -> str:
    declared = _CHARSET.search(media_type) or _CHARSET.search(body[:1024].decode("latin-1"))
    try:
        return body.decode(declared[1] if declared else "utf-8", "replace")
    except LookupError:
        return body.decode("utf-8", "replace")
