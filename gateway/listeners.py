"""Listening addresses: reading them, binding them, and cleaning up after them."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Sequence
from pathlib import Path

from actors.errors import Invalid, Unavailable
from gateway.auth import is_loopback
from gateway.front_io import tune
from gateway.http import Bind
from gateway.settings import Settings

_FORMS = "host:port, unix:///path/to/socket or fd://N"


class Listener:
    """A listening socket.

    Attributes:
        sock: Non-blocking.
        bind: What kind of address it is; requests carry it.
        address: As people read it: ``127.0.0.1:8080``, ``[::1]:8080`` or ``unix:///run/greenroom.sock``.
    """

    def __init__(self, sock: socket.socket, path: Path | None = None) -> None:
        self.sock = sock
        self._path = path
        sock.setblocking(False)
        if sock.family == socket.AF_UNIX:
            self.bind: Bind = "unix"
            self.address = f"unix://{sock.getsockname()}"
        else:
            host, port = sock.getsockname()[:2]
            self.bind = "loopback" if is_loopback(host) else "network"
            self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._inode = path.stat().st_ino if path is not None else 0

    def close(self) -> None:
        """Stop listening; remove the Unix socket's file unless another server has taken its place. Idempotent."""
        self.sock.close()
        path, self._path = self._path, None
        if path is not None and path.exists() and path.stat().st_ino == self._inode:
            path.unlink()


def open_listeners(addresses: Sequence[str], settings: Settings) -> list[Listener]:
    """Bind and listen on every address.

    Args:
        addresses: ``host:port`` (port 0: any free one), ``unix://path`` or ``fd://N``.
        settings: For the backlog and the send deadline.

    Raises:
        Invalid: an address is none of these.
        Unavailable: an address cannot be bound; those bound before it are closed again.
    """
    opened: list[Listener] = []
    try:
        for address in addresses:
            opened.append(_open(address, settings))  # noqa: PERF401 - what was opened must be closed
    except Exception:
        for listener in opened:
            listener.close()
        raise
    return opened


def _open(address: str, settings: Settings) -> Listener:
    try:
        if address.startswith("unix://"):
            return _open_unix(address.removeprefix("unix://"), settings)
        if address.startswith("fd://"):
            return _open_fd(address.removeprefix("fd://"), settings)
        return _open_tcp(address, settings)
    except OSError as exc:
        raise Unavailable(f"cannot listen on {address}: {exc.strerror or exc}") from exc


def _open_tcp(address: str, settings: Settings) -> Listener:
    host, colon, port_text = address.rpartition(":")
    if "://" in address or not colon or not port_text.isdecimal() or int(port_text) > 65535:
        raise Invalid(f"cannot listen on {address!r}: expected {_FORMS}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise Invalid(f"cannot listen on {address!r}: an IPv6 address is written in brackets, as [::1]:8080")
    found = socket.getaddrinfo(host or None, int(port_text), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # A name with several addresses, "localhost" above all, is bound by its IPv4 one.
    family, _, _, _, target = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # "[::]:80" takes IPv4 too, as people expect of "every address".
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        tune(sock, settings.send_seconds)
        sock.bind(target)
        sock.listen(settings.backlog)
        return Listener(sock)
    except OSError:
        sock.close()
        raise


def _open_unix(text: str, settings: Settings) -> Listener:
    if not text:
        raise Invalid(f"cannot listen on 'unix://': expected {_FORMS}")
    path = Path(text).absolute()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _remove_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The file is born private: between bind and a chmod anybody could connect.
        before = os.umask(0o177)
        try:
            sock.bind(str(path))
        finally:
            os.umask(before)
        sock.listen(settings.backlog)
        return Listener(sock, path)
    except OSError:
        sock.close()
        raise


def _remove_stale(path: Path) -> None:
    """Remove a socket file that nobody listens on.

    Raises:
        Unavailable: the file is no socket, or a server is using it.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise Unavailable(f"cannot listen on unix://{path}: the file exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise Unavailable(f"cannot listen on unix://{path}: another server is using it")


def _open_fd(text: str, settings: Settings) -> Listener:
    if not text.isdecimal() or int(text) < 3:
        raise Invalid(f"cannot listen on 'fd://{text}': expected fd://N with N at least 3")
    sock = socket.socket(fileno=int(text))
    if sock.type != socket.SOCK_STREAM or sock.family not in (
        socket.AF_INET,
        socket.AF_INET6,
        socket.AF_UNIX,
    ):
        sock.detach()
        raise Invalid(f"cannot listen on 'fd://{text}': it is not a stream socket")
    tune(sock, settings.send_seconds)
    sock.listen(settings.backlog)
    return Listener(sock)
