"""Running child processes so that none is left behind, whatever way the call ends.

A child leads its own session and process group and carries a unique mark in its environment. At the end the group gets
SIGTERM, then SIGKILL; on Linux, processes that left the group are found by the mark.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import trio
from msgspec import Struct

from actors.tools.tool import ToolError

MARK = "GREENROOM_PROCESS"
_TERM_SECONDS = 0.8
_ORPHAN_SECONDS = 0.3
_KILL_SECONDS = 1.0
_DRAIN_SECONDS = 0.2
_POLL_SECONDS = 0.02
_LAST_SECONDS = 5.0
_PROC = Path("/proc")
_CAN_SCAN = hasattr(os, "pidfd_open") and _PROC.is_dir()
_CLEAN_SCANS = 2
"""A process shows no environment for a moment while it starts another program, so one look is not enough."""


class Ended(Struct, frozen=True):
    """How a process ended: its exit code (negative for a signal), or that its time was up."""

    code: int
    timed_out: bool = False


@cache
def shell_program() -> str:
    """Return the shell that runs command lines: bash where there is one."""
    return shutil.which("bash") or "/bin/sh"


def shell_command(line: str) -> list[str]:
    """Return the program and arguments that run a command line."""
    return [shell_program(), "-c", line]


async def run_process(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    seconds: float,
    on_output: Callable[[bytes], object],
) -> Ended:
    """Run a program to its end and leave no process of it behind.

    Args:
        command: Program and arguments; no shell is involved.
        cwd: Its working directory.
        env: Its whole environment.
        seconds: How long it may run.
        on_output: Gets standard output and error as they come, mixed; never waits.

    Returns:
        How it ended. Children that it left running are ended as well.

    Raises:
        ToolError: it could not be started.

    Cancellation: the process and everything it started are gone within about two seconds.
    """
    mark = f"{os.getpid()}-{secrets.token_hex(12)}"
    try:
        process = await trio.lowlevel.open_process(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env={**env, MARK: mark},
            start_new_session=True,
        )
    except (OSError, ValueError, UnicodeEncodeError) as error:
        raise ToolError(f"cannot start {command[0]}: {error}") from error
    timed_out = False
    try:
        with trio.move_on_after(seconds) as scope:
            await _follow(process, on_output)
        timed_out = scope.cancelled_caught
    finally:
        # Shielded, because a process may not outlive its call. It takes one or two seconds at most, unless the
        # machine is badly overloaded or a process cannot be killed.
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _LAST_SECONDS):
            await _end(process, mark)
    return Ended(-signal.SIGKILL if process.returncode is None else process.returncode, timed_out)


async def _follow(process: trio.Process, on_output: Callable[[bytes], object]) -> None:
    """Pass output on until the process has ended and, as far as it does not take long, its pipe is drained."""
    stdout = process.stdout
    assert stdout is not None
    drained = trio.Event()

    async def pump() -> None:
        while data := await stdout.receive_some(65536):
            on_output(bytes(data))
        drained.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pump)
        await process.wait()
        # A background child may hold the pipe open for ever.
        with trio.move_on_after(_DRAIN_SECONDS):
            await drained.wait()
        nursery.cancel_scope.cancel()


async def _end(process: trio.Process, mark: str) -> None:
    """End the process's group, then whatever else carries the mark."""
    group = process.pid
    if _signal_group(group, signal.SIGTERM):
        with trio.move_on_after(_TERM_SECONDS) as grace:
            while _signal_group(group, 0):
                if process.poll() is not None:
                    # Zombies that nobody reaps would make the rest of the group look alive for the whole time.
                    grace.deadline = min(grace.deadline, trio.current_time() + _ORPHAN_SECONDS)
                await trio.sleep(_POLL_SECONDS)
        _signal_group(group, signal.SIGKILL)
    with trio.move_on_after(_KILL_SECONDS):
        await process.wait()
    if process.stdout is not None:
        await process.stdout.aclose()
    await _end_marked(mark)


def _signal_group(group: int, number: int) -> bool:
    """Send a signal to a process group; tell whether there was anyone to get it."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # macOS says this of a group of zombies
        return False
    return True


async def _end_marked(mark: str) -> None:
    """Kill every process with the mark in its environment: those that made a session of their own."""
    if not _CAN_SCAN:
        return
    clean = 0
    while True:
        found = await trio.to_thread.run_sync(_kill_marked, mark.encode(), abandon_on_cancel=True)
        clean = 0 if found else clean + 1
        if clean >= _CLEAN_SCANS:
            return
        await trio.sleep(_POLL_SECONDS)


def _kill_marked(mark: bytes) -> bool:
    """Kill the processes that carry the mark now; tell whether there were any."""
    wanted = MARK.encode() + b"=" + mark
    found = False
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            descriptor = os.pidfd_open(int(entry.name))
        except OSError:
            continue
        try:
            # The descriptor pins the process, so its number cannot be someone else's by the time of the kill.
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                found = True
        except OSError:
            continue
        finally:
            os.close(descriptor)
    return found
