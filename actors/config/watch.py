"""One source kept current: looked at on access, swapped whole, never replaced by something broken or half written."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Sequence
from pathlib import Path

import msgspec
import trio
from msgspec import Struct

from actors.config.document import config_document
from actors.config.errors import ConfigError
from actors.config.load import load_with
from actors.config.resolve import InstructionReader
from actors.config.schema import Config
from actors.config.sources import Source
from actors.config.stamp import Stamp, stamp_or_absent

logger = logging.getLogger("greenroom.config")

SETTLED = 1.0
"""Seconds after a change during which a writer may still be at work, and a stamp may hide a second change."""
PAUSE = 0.02
"""Seconds between two readings that have to agree."""
READINGS = 6
"""How often a file that keeps changing is read before the present version stays."""


class Loaded(Struct, frozen=True, kw_only=True):
    """One version of a source, whole.

    Attributes:
        id: The agent id.
        config: Resolved.
        digest: Equal for equal configurations, instruction texts included; changes with each new version.
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
        fresh: Seconds for which a look is good; a busy server need not look for each of its requests.

    Attributes:
        loaded: The version in use; ``None`` before the first success.
        problem: Why the source's present content is not in use; ``None`` when it is.
    """

    def __init__(self, source: Source, flavors: Sequence[str] = (), fresh: float = 0.0) -> None:
        self.source = source
        self._fresh = fresh
        self._looked = -math.inf
        self.loaded: Loaded | None = None
        self.problem: ConfigError | None = None
        self._flavors = tuple(flavors)
        self._lock = trio.Lock()
        self._stamps: dict[Path | None, Stamp] = {}
        self._content = b""
        self._logged = ""

    async def current(self) -> Loaded:
        """Return the newest usable version, having looked whether there is a newer one.

        While another task looks, the version in use is returned at once.

        Raises:
            ConfigError: no version was ever usable.

        Cancellation: the version in use stays.
        """
        if self.loaded is not None and trio.current_time() - self._looked < self._fresh:
            return self.loaded
        if self.loaded is None or not self._lock.locked():
            async with self._lock:
                await self._look()
                self._looked = trio.current_time()
        if self.loaded is None:
            raise self.problem or ConfigError("the file is still being written", self.source.name)
        return self.loaded

    async def _look(self) -> None:
        try:
            if await self._is_known() or await self._reads_the_same():
                return
            read = await self._whole_content()
        except ConfigError as error:
            self._stamps = {}
            self._fail(error, str(error))
            return
        if read is not None:
            await self._take(*read)

    async def _is_known(self) -> bool:
        """Tell whether nothing has changed; a stamp that was young when it was taken may hide a second change."""
        own = await self.source.stamp()
        before = self._stamps.get(None)
        if before is None or own.version != before.version:
            return False
        others = [path for path in self._stamps if path is not None]
        stamps = await trio.to_thread.run_sync(_stamps_of, others) if others else {}
        return all(stamp.version == self._stamps[path].version for path, stamp in stamps.items()) and not any(
            _is_young(stamp) for stamp in self._stamps.values()
        )

    async def _reads_the_same(self) -> bool:
        """Tell whether the content is the known one behind another, or a still young, stamp."""
        if self._stamps.keys() != {None}:
            return False  # instruction files would have to be read too
        stamp = await self.source.stamp()
        if hashlib.sha256(await self.source.fetch()).digest() != self._content:
            return False
        self._stamps = {None: stamp}
        return True

    async def _whole_content(self) -> tuple[bytes, Stamp] | None:
        """Return content that no writer was seen to change meanwhile; ``None`` when there was no such moment."""
        stamp = await self.source.stamp()
        content = await self.source.fetch()
        for _ in range(READINGS):
            if not _is_young(stamp):
                again = await self.source.stamp()
                if again.version == stamp.version:
                    return content, again
            else:
                await trio.sleep(PAUSE)
                again = await self.source.stamp()
                if again.version == stamp.version and await self.source.fetch() == content:
                    return content, again
            stamp = again
            content = await self.source.fetch()
        return None

    async def _take(self, content: bytes, stamp: Stamp) -> None:
        digest = hashlib.sha256(content)
        reader = InstructionReader(self.source.directory)
        config: Config | None = None
        error: ConfigError | None = None
        try:
            config = await trio.to_thread.run_sync(self._load, content, reader)
        except ConfigError as problem:
            error = problem
        stamps: dict[Path | None, Stamp] = dict(reader.stamps.items())
        stamps[None] = stamp
        if any(_is_young(found) for found in reader.stamps.values()):
            await trio.sleep(PAUSE)
            now = await trio.to_thread.run_sync(_stamps_of, list(reader.stamps))
            if self.loaded and any(now[path].version != reader.stamps[path].version for path in now):
                return  # an instruction file is being written; the next look decides
        if error is not None:
            if self.loaded and any(_is_young(found) for found in stamps.values()):
                return  # perhaps half of it; the next look decides
            self._fail(error, digest.hexdigest() + str(error))
        else:
            assert config is not None
            self._swap(config)
        self._stamps, self._content = stamps, digest.digest()

    def _swap(self, config: Config) -> None:
        self.problem, self._logged = None, ""
        if self.loaded is None or self.loaded.config != config:
            source = self.source
            self.loaded = Loaded(
                id=source.id,
                config=config,
                digest=hashlib.sha256(msgspec.json.encode(config_document(config))).hexdigest(),
                name=source.name,
                directory=source.directory,
            )

    def _load(self, content: bytes, reader: InstructionReader) -> Config:
        return load_with(content, reader, file=self.source.name, flavors=self._flavors)

    def _fail(self, error: ConfigError, what: str) -> None:
        """Record a problem; the same one is logged once."""
        self.problem = error
        if what != self._logged:
            self._logged = what
            kept = "the version in use stays" if self.loaded else "it is not served"
            logger.warning(
                "agent file cannot be used, %s: %s", kept, error, extra={"agent_id": self.source.id}
            )


def _is_young(stamp: Stamp) -> bool:
    return stamp.age is not None and stamp.age < SETTLED


def _stamps_of(paths: Sequence[Path]) -> dict[Path, Stamp]:
    return {path: stamp_or_absent(path) for path in paths}
