"""Bytes or a file → a checked, resolved configuration: the one way in, for serving, checking and reloading alike."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from actors.config import yaml
from actors.config.decode import Decoder
from actors.config.errors import ConfigError
from actors.config.flavors import apply_flavors
from actors.config.resolve import InstructionReader, resolve
from actors.config.rules import NO_AGENTS, check_rules
from actors.config.schema import Config
from actors.config.versions import upgrade, version_of

SUFFIXES = (".yaml", ".yml")
"""Names that agent files end in."""


def load(
    content: bytes | str, file: str = "", *, flavors: Sequence[str] = (), directory: Path | None = None
) -> Config:
    """Return the configuration in ``content``, with its references merged.

    Args:
        content: YAML text, or its UTF-8 bytes with or without byte-order mark.
        file: Name for messages.
        flavors: Patches of the file's ``flavors`` to lay over it, in order.
        directory: Where ``instruction_file`` is read from; without one it is refused.

    Raises:
        ConfigError: the file cannot be used; ``problems`` has everything that is wrong with it.
    """
    return load_with(content, InstructionReader(directory), file=file, flavors=flavors)


def load_with(
    content: bytes | str, reader: InstructionReader, *, file: str = "", flavors: Sequence[str] = ()
) -> Config:
    """Like :func:`load`, with the reader of instruction files given, which remembers what it read."""
    root = yaml.parse(_text(content, file), file)
    if root is None:
        raise ConfigError(NO_AGENTS, file, key="agents")
    if not isinstance(root, yaml.Mapping):
        raise ConfigError("the file must be a map with the key 'agents'", file, root.line)
    root = apply_flavors(root, flavors, file)
    version = version_of(root, file)
    decoder = Decoder(file, version)
    config = decoder.config(upgrade(root, version))
    if config is None:
        raise ConfigError.of(decoder.problems)
    problems = check_rules(config, decoder.lines, file)
    if problems:
        raise ConfigError.of(problems)
    return resolve(config, reader, decoder.lines, file)


def load_file(path: str | Path, *, flavors: Sequence[str] = ()) -> Config:
    """Read and load an agent file; ``instruction_file`` is looked for beside it.

    Raises:
        ConfigError: see :func:`read_file` and :func:`load`.
    """
    path = Path(path)
    return load(read_file(path), str(path), flavors=flavors, directory=path.parent)


def check(path: str | Path, *, flavors: Sequence[str] = ()) -> list[ConfigError]:
    """Return everything that is wrong with an agent file, in file order; empty when it can be used."""
    try:
        load_file(path, flavors=flavors)
    except ConfigError as error:
        return list(error.problems)
    return []


def read_file(path: Path) -> bytes:
    """Return the content of an agent file.

    Raises:
        ConfigError: it does not exist, is no regular file, is too large or cannot be read, or is HCL.
    """
    name = str(path)
    if path.suffix == ".hcl":
        raise ConfigError("HCL agent files are not supported; write the same keys as YAML", name)
    try:
        descriptor = os.open(
            path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        )  # a pipe would wait for its writer
        try:
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISDIR(mode):
                raise ConfigError("this is a directory, not an agent file", name)
            if not stat.S_ISREG(mode):
                raise ConfigError("not a regular file", name)
            with open(descriptor, "rb", closefd=False) as opened:
                content = opened.read(yaml.MAX_BYTES + 1)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise ConfigError("no such file", name) from None
    except ValueError:
        raise ConfigError("not a usable file name", name) from None
    except OSError as error:
        raise ConfigError(f"the file cannot be read: {error.strerror}", name) from error
    if len(content) > yaml.MAX_BYTES:
        raise ConfigError(f"the file is larger than {yaml.MAX_BYTES} bytes", name)
    return content


def _text(content: bytes | str, file: str) -> str:
    if len(content) > yaml.MAX_BYTES:
        raise ConfigError(f"the file is larger than {yaml.MAX_BYTES} bytes", file)
    text = content if isinstance(content, str) else _decoded(content, file)
    if "\0" in text:
        raise ConfigError("the file is binary, not YAML", file)
    return text


def _decoded(content: bytes, file: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError("the file is not UTF-8 text", file, line) from None
