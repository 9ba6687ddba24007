"""Agent files from elsewhere: a URL, or an artifact of an OCI registry; kept in memory and pulled anew on request.

What was pulled once stays in use when a later pull fails. The protocol of registries is in ``registry``.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import trio

from actors.config import yaml
from actors.config.errors import ConfigError, SourceUnavailable
from actors.config.registry import OK, Reference, pull, read_limited
from actors.config.sources import BUILTINS, oci_agent_id, url_agent_id
from actors.config.stamp import Stamp

logger = logging.getLogger("greenroom.config")

PULL_SECONDS = 30.0
"""How long one pull may take."""
RETRY_SECONDS = 5.0
"""After a failure, how long requests get it told again before another attempt."""
_REFERENCE = re.compile(
    r"(?:[a-zA-Z0-9.-]+(?::\d+)?/)?[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)

Pull = Callable[[httpx2.AsyncClient], Awaitable[bytes]]


class RemoteSource:
    """An agent file that is pulled: first when it is asked for, then at each :meth:`refresh`.

    Args:
        agent_id: The id under which it is served.
        kind: ``url`` or ``oci``.
        name: What messages call it.
        pull_content: Gets it.
    """

    def __init__(self, agent_id: str, kind: str, name: str, pull_content: Pull) -> None:
        self.id = agent_id
        self.kind = kind
        self.name = name
        self.directory: Path | None = None
        self._pull = pull_content
        self._lock = trio.Lock()
        self._content: bytes | None = None
        self._version = 0
        self._failed: ConfigError | None = None
        self._retry_at = -math.inf

    async def stamp(self) -> Stamp:
        """Return the number of the present content. Raises: SourceUnavailable when it was never had."""
        if self._content is None:
            async with self._lock:
                await self._first()
        else:
            await trio.lowlevel.checkpoint()
        return Stamp((self._version,))

    async def fetch(self) -> bytes:
        """Return the content. Raises: SourceUnavailable when it was never had."""
        await self.stamp()
        assert self._content is not None
        return self._content

    async def refresh(self) -> None:
        """Pull it again; a failure is logged and leaves what there is."""
        async with self._lock:
            try:
                await self._take()
            except ConfigError as error:
                kept = "the version in use stays" if self._content is not None else "there is none yet"
                logger.warning("agent could not be pulled, %s: %s", kept, error, extra={"agent_id": self.id})

    async def _first(self) -> None:
        if self._content is not None:
            return
        if self._failed is not None and trio.current_time() < self._retry_at:
            raise self._failed
        try:
            await self._take()
        except ConfigError as error:
            self._failed, self._retry_at = error, trio.current_time() + RETRY_SECONDS
            raise

    async def _take(self) -> None:
        content = b""
        with trio.move_on_after(PULL_SECONDS) as scope:
            try:
                async with httpx2.AsyncClient(timeout=PULL_SECONDS, follow_redirects=True) as client:
                    content = await self._pull(client)
            except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                raise SourceUnavailable(
                    f"it cannot be pulled: {str(error) or type(error).__name__}", self.name
                ) from error
        if scope.cancelled_caught:
            raise SourceUnavailable(f"it did not come within {PULL_SECONDS:.0f} seconds", self.name)
        if content != self._content:
            self._content, self._version = content, self._version + 1


def remote_source(text: str) -> RemoteSource | None:
    """Return the source for a URL or an OCI reference, ``None`` for anything that names a file or a built-in.

    An OCI reference has a slash or a tag, so that a mistyped file name stays one.
    """
    if text.startswith(("http://", "https://")):
        return RemoteSource(url_agent_id(text), "url", shown_url(text), lambda client: get_url(client, text))
    path = Path(text)
    if text in BUILTINS or path.exists() or path.suffix in (".yaml", ".yml", ".hcl"):
        return None
    if not _REFERENCE.fullmatch(text) or not re.search(r"[/:@]", text):
        return None
    reference = Reference.parse(text)
    return RemoteSource(oci_agent_id(text), "oci", text, lambda client: pull(client, reference))


def shown_url(url: str) -> str:
    """Return a URL as messages may show it: without user, password and query, which may be secret."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


async def get_url(client: httpx2.AsyncClient, url: str) -> bytes:
    """Return what a URL has, read no further than an agent file may be large.

    Raises:
        SourceUnavailable: the server does not give it.
        ConfigError: it is too large.
    """
    async with client.stream("GET", url) as response:
        if response.status_code != OK:
            raise SourceUnavailable(f"its server answered {response.status_code}", shown_url(url))
        return await read_limited(response, yaml.MAX_BYTES, shown_url(url))
