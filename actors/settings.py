"""One frozen value that says how a runtime is set up; made from the environment and overridden by its caller."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from actors.errors import Invalid


def default_data_dir(environment: Mapping[str, str]) -> Path:
    """Return where Greenroom keeps its files: ``GREENROOM_DATA_DIR``, else ``~/.greenroom``."""
    given = environment.get("GREENROOM_DATA_DIR", "")
    return Path(given).expanduser().absolute() if given else Path(environment.get("HOME", "/")) / ".greenroom"


class Settings(Struct, frozen=True, kw_only=True):
    """How a runtime is set up.

    Attributes:
        data_dir: Files of the runtime: model weights, plans, memories.
        database: The journal's file; ``None`` keeps everything in memory.
        default_model: ``provider/model`` for agents that ask for ``auto``; empty: found by the keys that are set.
        working_dir: Where tools of sessions without a directory of their own work.
        working_dir_root: If set, every session's directory must lie in it.
        environment: Variables for keys, ``${env.NAME}`` and child processes.
        idle_after: Seconds after which an idle session's actor gives its memory back.
        squad_executions: How many executions of one squad may be live at once.
        ledger_events: Events after which an execution's ledger is cut off.
        ledger_bytes: Bytes after which it is.
        pull_interval: Seconds between two pulls of agents from URLs and registries; 0 pulls each once.
        allow_private_tools: Let API tools reach addresses of private networks and of this machine.
        reachable_hosts: Networks, addresses and ``host:port`` that API tools may reach although they are private.
        secret_key: Phrase under which stored credentials are sealed; empty: a key file in the data directory.
        cancel_on_disconnect: Whether a client that leaves a run's own stream cancels the run.
    """

    data_dir: Path
    database: Path | None = None
    default_model: str = ""
    working_dir: Path = field(default_factory=Path.cwd)
    working_dir_root: str = ""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    idle_after: float = 30.0
    squad_executions: int = 5
    ledger_events: int = 10_000
    ledger_bytes: int = 8 << 20
    pull_interval: float = 0.0
    cancel_on_disconnect: bool = True
    allow_private_tools: bool = False
    reachable_hosts: tuple[str, ...] = ()
    secret_key: str = ""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Return the settings that the environment alone gives; the process's own when none is passed.

        Raises:
            Invalid: a variable that is to be a whole number above 0 is none.
        """
        found = dict(os.environ if environment is None else environment)
        return cls(
            data_dir=default_data_dir(found),
            default_model=found.get("GREENROOM_DEFAULT_MODEL", ""),
            secret_key=found.pop("GREENROOM_SECRET_KEY", ""),
            squad_executions=_number(found, "GREENROOM_SQUAD_EXECUTIONS", 5),
            ledger_events=_number(found, "GREENROOM_LEDGER_EVENTS", 10_000),
            ledger_bytes=_number(found, "GREENROOM_LEDGER_BYTES", 8 << 20),
            environment=found,
        )


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or not int(text):
        raise Invalid(f"{name}: {text!r} is not a whole number above 0")
    return int(text)
