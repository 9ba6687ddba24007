"""The switch that makes real model calls impossible, for test suites.

Loopback and injected transports stay allowed: that is where stub servers live.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Generator
from contextlib import contextmanager

_forbidden = False


class NetworkForbiddenError(RuntimeError):
    """A real model call was about to be made although :func:`forbid_network` is in force."""


def forbid_network() -> None:
    """Refuse every connection to a model provider that is not on this machine, from now on."""
    global _forbidden  # a switch of the process, by design
    _forbidden = True


@contextmanager
def allow_network() -> Generator[None]:
    """Lift :func:`forbid_network` inside the block, for the tests that are about the real thing."""
    global _forbidden
    before, _forbidden = _forbidden, False
    try:
        yield
    finally:
        _forbidden = before


def check_network(host: str) -> None:
    """Return if a connection to ``host`` may be made.

    Raises:
        NetworkForbiddenError: it may not.
    """
    if _forbidden and not _is_loopback(host):
        raise NetworkForbiddenError(
            f"model calls over the network are forbidden in this process (host {host})"
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
