"""The gateway's settings and their defaults; times in seconds, sizes in bytes."""

from __future__ import annotations

from msgspec import Struct

MIB = 1024 * 1024


class Settings(Struct, frozen=True, kw_only=True):
    """How the gateway serves.

    Attributes:
        auth_token: Bearer token every route but ``/health`` and ``/ready`` asks for; empty for none.
        require_auth: Ask for a credential even where nothing else makes it necessary.
        master_key: A credential that grants everything; empty for none. With one, listeners that other machines can
            reach ask for a credential.
        hidden_pages: Page ids, e.g. ``/squad``, whose routes and tools are refused.
        max_request_size: Largest body, unless a row has its own limit; 0 or less for 1 MiB.
        allowed_hosts: ``Host`` names accepted besides loopback names; they also bind non-loopback listeners.
        allowed_origins: Origins that may change state or open sockets besides the server's own.
        front: Serve HTTP/1.1 by the gateway's own loop; otherwise everything goes through Quart and
        Hypercorn.
        header_seconds: For a request's head to arrive.
        body_seconds: For its body to arrive.
        idle_seconds: A kept-alive connection may rest between requests.
        send_seconds: A client may leave sent bytes unread before it is dropped.
        grace_seconds: At shutdown, for requests in progress and last words.
        ping_seconds: Between WebSocket pings; a peer is dropped when it misses two.
        max_message_size: Largest WebSocket message from a client.
        max_head_size: Largest request head.
        max_headers: Most header fields in a request.
        backlog: Of the listening sockets.
    """

    auth_token: str = ""
    require_auth: bool = False
    master_key: str = ""
    hidden_pages: tuple[str, ...] = ()
    max_request_size: int = MIB
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    front: bool = True
    header_seconds: float = 10.0
    body_seconds: float = 60.0
    idle_seconds: float = 75.0
    send_seconds: float = 30.0
    grace_seconds: float = 2.0
    ping_seconds: float = 15.0
    max_message_size: int = MIB
    max_head_size: int = 32 * 1024
    max_headers: int = 128
    backlog: int = 4096

    @property
    def body_limit(self) -> int:
        """``max_request_size`` with its fall-back."""
        return self.max_request_size if self.max_request_size > 0 else MIB
