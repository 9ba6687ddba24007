"""Records of the runs that can be driven from outside: ``<data-dir>/runs/<pid>.json``, there as long as the run is."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct


class RunRecord(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One run.

    Attributes:
        pid: Its process.
        addr: ``http://`` and where its control plane listens.
        session_id: Its session.
        agent: The agent that was asked for; empty for the file's default.
        started_at: RFC 3339.
    """

    pid: int
    addr: str
    session_id: str
    agent: str = ""
    started_at: str


@contextmanager
def recorded(data_dir: Path, address: str, session_id: str, agent: str, now: float) -> Generator[RunRecord]:
    """Keep a record of this process for the block.

    Args:
        data_dir: The data directory.
        address: As the listener gives it: ``host:port`` or ``unix:///path``.
        session_id: The run's session.
        agent: The agent asked for, or empty.
        now: Seconds since the epoch.

    Raises:
        OSError: it cannot be written.
    """
    record = RunRecord(
        pid=os.getpid(),
        addr=f"http://{address.removeprefix('unix://')}",
        session_id=session_id,
        agent=agent,
        started_at=datetime.fromtimestamp(now, UTC).isoformat(),
    )
    folder = data_dir / "runs"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    path = folder / f"{record.pid}.json"
    # A temporary file is made private, and appears under its name with everything in it.
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
    try:
        yield record
    finally:
        with suppress(FileNotFoundError):
            path.unlink()


def live_runs(data_dir: Path) -> list[RunRecord]:
    """Return the records of runs that are alive, the latest first; those of dead processes are removed."""
    found: list[RunRecord] = []
    for path in (data_dir / "runs").glob("*.json"):
        try:
            record = msgspec.json.decode(path.read_bytes(), type=RunRecord)
        except (OSError, msgspec.DecodeError):
            continue  # being removed, or not ours
        if _is_alive(record.pid):
            found.append(record)
        else:
            path.unlink(missing_ok=True)
    return sorted(found, key=lambda record: record.started_at, reverse=True)


def find_run(data_dir: Path, wanted: str) -> RunRecord | None:
    """Return the live run of a process id, an address or a session id; the latest when ``wanted`` is empty."""
    for record in live_runs(data_dir):
        names = (str(record.pid), record.addr, record.addr.removeprefix("http://"), record.session_id)
        if not wanted or wanted in names:
            return record
    return None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
