"""A program under measurement: started, watched through /proc, and stopped with certainty."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE

import trio

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Measured:
    """A running program. Times are seconds, sizes bytes.

    Attributes:
        line: The first line it printed: the sign that it is ready.
        started_in: Seconds from spawn to that line.
    """

    def __init__(self, process: trio.Process, line: str, started_in: float) -> None:
        self.process = process
        self.line = line
        self.started_in = started_in

    def cpu(self) -> float:
        """Return the processor time used so far, user and system together."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory(self) -> int:
        """Return the resident set."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * PAGE


@asynccontextmanager
async def started(
    command: Sequence[str],
    *,
    core: int | None = None,
    env: Mapping[str, str] | None = None,
    wait: float = 30.0,
) -> AsyncGenerator[Measured]:
    """Start a program, wait for its first line, and end it when the block ends.

    Args:
        command: Program and arguments.
        core: The processor core it is pinned to.
        env: Added to this process's environment.
        wait: Seconds it has to print its first line.

    Raises:
        RuntimeError: it ended or stayed silent.
    """
    pin = ["taskset", "-c", str(core)] if core is not None else []
    began = time.perf_counter()
    process = await trio.lowlevel.open_process(
        [*pin, *command], stdout=PIPE, env={**os.environ, **(env or {})}
    )
    assert process.stdout is not None
    try:
        line = b""
        with trio.move_on_after(wait):
            while b"\n" not in line and (data := await process.stdout.receive_some(4096)):
                line += data
        took = time.perf_counter() - began
        if b"\n" not in line:
            raise RuntimeError(f"{' '.join(command)} did not get ready: {line!r}")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_drain, process.stdout)
            yield Measured(process, line.decode().partition("\n")[0], took)
            nursery.cancel_scope.cancel()
    finally:
        # Bounded: a program that ignores SIGTERM for 10 s is killed.
        with trio.CancelScope(shield=True):
            process.terminate()
            with trio.move_on_after(10):
                await process.wait()
            process.kill()
            await process.wait()


async def _drain(stream: trio.abc.ReceiveStream) -> None:
    while await stream.receive_some(65536):
        pass


def raise_descriptor_limit() -> None:
    """Allow this process and its children as many open files as the system permits."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def cores() -> tuple[int | None, int | None]:
    """Return one core for the program under test and one for everything that drives it, if there are two."""
    available = sorted(os.sched_getaffinity(0))
    return (available[0], available[1]) if len(available) > 1 else (None, None)
