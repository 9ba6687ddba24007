"""Where agent files come from: what a source is, local files and the built-in assistant, and their agent ids."""

from __future__ import annotations

import os
import re
from importlib import resources
from pathlib import Path
from typing import Protocol
from urllib.parse import quote_plus, unquote_plus

import trio

from actors.config.errors import ConfigError
from actors.config.load import SUFFIXES, read_file
from actors.config.stamp import Stamp, file_stamp

BUILTINS = {"assistant": "assistant.yaml"}
"""Name of each configuration inside the package → its file."""


class Source(Protocol):
    """One agent file, wherever it is.

    Attributes:
        id: The agent id under which it is served.
        kind: ``file``, ``builtin``, ``oci`` or ``url``.
        name: What messages call it.
        directory: Where its ``instruction_file`` may be; ``None`` when it is not a local file.
    """

    id: str
    kind: str
    name: str
    directory: Path | None

    async def stamp(self) -> Stamp:
        """Return the present version's stamp, quickly. Raises: ConfigError when the source is not there."""
        ...

    async def fetch(self) -> bytes:
        """Return the content. Raises: ConfigError when it cannot be had."""
        ...


class FileSource:
    """A local file; its id is the name without extension."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kind = "file"
        self.id = path.stem
        self.name = str(path)
        self.directory: Path | None = path.parent

    async def stamp(self) -> Stamp:
        """Return what tells versions of the file apart. Raises: ConfigError when it is not there."""
        return await trio.to_thread.run_sync(file_stamp, self.path)

    async def fetch(self) -> bytes:
        """Return the content. Raises: ConfigError, see :func:`~actors.config.load.read_file`."""
        return await trio.to_thread.run_sync(read_file, self.path)


class BuiltinSource:
    """A configuration that comes with the package and keeps its name."""

    def __init__(self, name: str = "assistant") -> None:
        self.kind = "builtin"
        self.directory: Path | None = None
        self.id = name
        self.name = f"built-in {name}"
        self._content = resources.files("actors.config").joinpath(BUILTINS[name]).read_bytes()

    async def stamp(self) -> Stamp:
        """Return the one version there is."""
        await trio.lowlevel.checkpoint()
        return Stamp(())

    async def fetch(self) -> bytes:
        """Return the content."""
        await trio.lowlevel.checkpoint()
        return self._content


def agent_files(directory: Path) -> list[Path]:
    """Return a directory's agent files in name order; not recursive, without hidden files, HCL included.

    Raises:
        ConfigError: the directory cannot be read.
    """
    try:
        names = sorted(entry.name for entry in os.scandir(directory) if not entry.name.startswith("."))
    except OSError as error:
        raise ConfigError(f"the directory cannot be read: {error.strerror}", str(directory)) from error
    paths = [directory / name for name in names if name.endswith((*SUFFIXES, ".hcl"))]
    return [path for path in paths if not path.is_dir()]


def url_agent_id(url: str) -> str:
    """Return the agent id of a URL source: the URL, query-escaped."""
    return quote_plus(url)


def oci_agent_id(reference: str) -> str:
    """Return the agent id of an OCI reference: what a file name cannot hold becomes ``_``."""
    return re.sub(r'[/:@\\*?"<>|]', "_", reference)


def without_query(agent_id: str) -> str:
    """Return a URL source's id without the URL's query; other ids stay."""
    url = unquote_plus(agent_id)
    return quote_plus(url.partition("?")[0]) if url.startswith(("http://", "https://")) else agent_id
