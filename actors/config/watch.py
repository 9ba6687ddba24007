"""One source kept current: looked at on access, swapped whole, and never replaced by something broken or half written."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path

import trio
from msgspec import Struct

from actors.config.errors import ConfigError
from actors.config.load import load_with
from actors.config.resolve import InstructionReader
from actors.config.schema import Config
from actors.config.sources import Source, Stamp, file_stamp

logger = logging.getLogger("greenroom.config")

SETTLED = 1.0
"""Seconds after a change during which a writer may still be at work, and a stamp may hide a second change."""
PAUSE = 0.01
"""Seconds between two readings that have to agree."""
READINGS = 6
"""How often a file that keeps changing is read before the present version stays."""


class Loaded(Struct, frozen=True, kw_only=True):
    """One version of a source, whole.

    Attributes:
        id: The agent id.
        config: Resolved.
        digest: Equal for equal content, instruction files included; changes with each new version.
        name: What messages call the source.
        directory: Of a local file; ``None`` otherwise.
    """

    id: str
    config: Config
    digest: str
    name: str
    directory: Path | None = None


class Watched:
    """The newest usable version of a source.

    Args:
        source: Where it comes from.
        flavors: Patches to lay over it.

    Attributes:
        loaded: The version in use; ``None`` before the first success.
        problem: Why the source's present content is not in use; ``None`` when it is.
    """

    def __init__(self, source: Source, flavors: Sequence[str] = ()) -> None:
        self.source = source
        self.loaded: Loaded | None = None
        self.problem: ConfigError | None = None
        self._flavors = tuple(flavors)
        self._lock = trio.Lock()
        self._stamps: dict[Path | None, Stamp] = {}
        self._seen = ""

    async def current(self) -> Loaded:
        """Return the newest usable version, having looked whether there is a newer one.

        While another task looks, the version in use is returned at once.

        Raises:
            ConfigError: no version was ever usable.

        Cancellation: the version in use stays.
        """
        if self.loaded is None or not self._lock.locked():
            async with self._lock:
                await self._look()
        if self.loaded is None:
            raise self.problem or ConfigError("the file is still being written", self.source.name)
        return self.loaded

    async def _look(self) -> None:
        try:
            stamps = await self._present_stamps()
            if stamps is not None and self._is_known(stamps):
                return
            content = await self._whole_content()
        except ConfigError as error:
            self._fail(error, f"unreadable: {error}")
            return
        if content is None:
            return
        await self._take(*content)

    async def _present_stamps(self) -> dict[Path | None, Stamp] | None:
        """Return the stamps of all files of the version in use; ``None`` when one of the smaller ones is gone."""
        found: dict[Path | None, Stamp] = {None: await self.source.stamp()}
        for path in self._stamps:
            if path is not None:
                try:
                    found[path] = await trio.to_thread.run_sync(file_stamp, path)
                except ConfigError:
                    return None
        return found

    def _is_known(self, stamps: dict[Path | None, Stamp]) -> bool:
        """Tell whether nothing has changed: a stamp taken right after a change may hide another one."""
        return stamps.keys() == self._stamps.keys() and all(
            stamp.version == before.version and (before.age is None or before.age >= SETTLED)
            for stamp, before in ((stamps[path], self._stamps[path]) for path in stamps)
        )

    async def _whole_content(self) -> tuple[bytes, Stamp] | None:
        """Return content that no writer was seen to change meanwhile; ``None`` when there was no such moment."""
        stamp = await self.source.stamp()
        content = await self.source.fetch()
        for _ in range(READINGS):
            if stamp.age is not None and stamp.age < SETTLED:
                await trio.sleep(PAUSE)
            before, read = stamp.version, content
            stamp = await self.source.stamp()
            if stamp.age is None or (stamp.version == before and stamp.age >= SETTLED):
                return content, stamp
            content = await self.source.fetch()
            if stamp.version == before and content == read:
                return content, stamp
        return None

    async def _take(self, content: bytes, stamp: Stamp) -> None:
        reader = InstructionReader(self.source.directory)
        try:
            config = await trio.to_thread.run_sync(self._load, content, reader)
        except ConfigError as error:
            if self.loaded and stamp.age is not None and stamp.age < SETTLED:
                return  # perhaps half of it; the next look decides
            self._fail(error, hashlib.sha256(content).hexdigest())
            self._stamps = {None: stamp}
            return
        digest = hashlib.sha256(content)
        stamps: dict[Path | None, Stamp] = {None: stamp}
        for path, text in reader.contents.items():
            digest.update(b"\0" + text.encode())
            stamps[path] = reader.stamps[path]
        self._stamps = stamps
        self._seen = digest.hexdigest()
        self.problem = None
        if self.loaded is None or self.loaded.digest != self._seen:
            source = self.source
            self.loaded = Loaded(
                id=source.id, config=config, digest=self._seen, name=source.name, directory=source.directory
            )

    def _load(self, content: bytes, reader: InstructionReader) -> Config:
        return load_with(content, reader, file=self.source.name, flavors=self._flavors)

    def _fail(self, error: ConfigError, seen: str) -> None:
        """Record a problem; each is logged once."""
        self.problem = error
        if seen != self._seen:
            self._seen = seen
            kept = "the version in use stays" if self.loaded else "it is not served"
            logger.warning("agent file cannot be used, %s: %s", kept, error, extra={"agent_id": self.source.id})
