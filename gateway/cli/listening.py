"""What a serving command owes its operator about an address: a token for one that others can reach, or a warning."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Mapping

import click

from actors.errors import Invalid
from gateway.auth import is_loopback
from gateway.listeners import Listener
from gateway.serve import announce

CREDENTIALS = ("GREENROOM_AUTH_TOKEN", "GREENROOM_MASTER_KEY", "GREENROOM_API_KEY")
OPEN_WARNING = """\
WARNING: {address} can be reached from other machines, and --no-auth was given.
WARNING: whoever reaches it can run every tool of every agent served here.
WARNING: listen on 127.0.0.1 or set {option} unless this is meant.
"""
GENERATED = "Clients must send this token, made for this run because no {option} was given: {token}\n"


class Access:
    """The token of one serving command.

    Args:
        address: Where it will listen.
        given: The token that was given, if any.
        no_auth: Nobody needs a token, wherever it listens.
        guarded: Something else keeps others out.
        option: What the token's option is called.

    Attributes:
        token: What clients must send; empty for nothing.
    """

    def __init__(
        self,
        address: str,
        given: str | None,
        *,
        no_auth: bool,
        guarded: bool = False,
        option: str = "--auth-token",
    ) -> None:
        if given and no_auth:
            raise click.UsageError(f"{option} and --no-auth contradict each other")
        self._option = option
        self._open = no_auth
        self._made = not (given or no_auth or guarded) and reaches_network(address)
        self.token = secrets.token_urlsafe(24) if self._made else given or ""

    def announce(self, listener: Listener) -> None:
        """Say where the server listens, and what that asks of clients or of the operator."""
        if self._made:
            sys.stderr.write(GENERATED.format(option=self._option, token=self.token))
        elif listener.bind == "network" and self._open:
            sys.stderr.write(OPEN_WARNING.format(address=listener.address, option=self._option))
        sys.stderr.flush()
        announce(listener)


def without_credentials(environment: Mapping[str, str], *also: str) -> Mapping[str, str]:
    """Return the environment that agents and their tools get: without the keys to the server they run in.

    Args:
        environment: The process's.
        also: Variables that hold such a key besides the usual ones.
    """
    return {name: value for name, value in environment.items() if name not in (*CREDENTIALS, *also)}


def reaches_network(address: str) -> bool:
    """Tell whether other machines may reach a listening address; an address that is none reaches nobody."""
    if address.startswith("unix://"):
        return False
    if address.startswith("fd://"):
        return _inherited_reaches_network(address.removeprefix("fd://"))
    host, colon, _ = address.rpartition(":")
    return bool(colon) and not is_loopback(host.strip("[]").lower())


def _inherited_reaches_network(number: str) -> bool:
    if not number.isdecimal():
        return False
    try:
        with socket.socket(fileno=os.dup(int(number))) as copy:
            return copy.family != socket.AF_UNIX and not is_loopback(str(copy.getsockname()[0]))
    except OSError as error:
        raise Invalid(f"fd://{number} is not a socket: {error.strerror}") from None
