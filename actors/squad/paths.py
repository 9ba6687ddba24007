"""Which names and paths a squad may use: workspaces, ids that become file names, and agents' memory files. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import PurePosixPath

from actors.errors import Invalid
from actors.squad.override import RESERVED

NAME_BYTES = 255
STEM_BYTES = 80
ID_LENGTH = 128
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_WORDS = re.compile(r"[^\W_]+")


def check_workspace_path(text: str) -> str:
    """Return the absolute path a caller gave for a workspace, in its plainest spelling.

    Raises:
        Invalid: it is not absolute, has a ``..`` component, is the file system's root, or has a name no file can have.
    """
    check_text(text)
    if not text.startswith("/"):
        raise Invalid(f"workspace path {text!r} is not absolute")
    names = [name for name in text.split("/") if name not in ("", ".")]
    if ".." in names or any(part == ".." for name in names for part in name.split("\\")):
        raise Invalid(f"workspace path {text!r} has a '..' component")
    if not names:
        raise Invalid("the root of the file system cannot be a workspace")
    return str(PurePosixPath("/", *names))


def check_relative(text: str) -> tuple[str, ...]:
    """Return the components of a path inside a workspace; none for the workspace itself.

    Raises:
        Invalid: it is absolute, has a ``..`` component, also one in disguise, or a name no file can have.
    """
    if text:
        check_text(text)
    if (
        text.startswith(("/", "~", "\\"))
        or re.match(r"[A-Za-z]:[\\/]", text)
        or text.lower().startswith("file:")
    ):
        raise Invalid(f"path {text!r} is not relative to the workspace")
    names = [name for name in text.split("/") if name not in ("", ".")]
    for name in names:
        plain = unicodedata.normalize("NFKC", name)
        if any(part.split(";")[0].strip() == ".." for part in re.split(r"[\\/]", plain)):
            raise Invalid(f"path {text!r} has a '..' component")
    return tuple(names)


def check_text(text: str) -> None:
    """Raise Invalid for a path that is blank, or has control characters or a name that is too long."""
    if not text.strip():
        raise Invalid("the path is empty")
    if any(char < " " or char == "\x7f" or "\ud800" <= char <= "\udfff" for char in text):
        raise Invalid(f"path {text!r} has a control character or is not valid text")
    if any(len(name.encode()) > NAME_BYTES for name in text.split("/")):
        raise Invalid("the path has a name of more than 255 bytes")


def check_agent_id(agent_id: str) -> str:
    """Return an id a caller chose for an agent; it becomes a directory's name and a part of URLs.

    Raises:
        Invalid: it has other characters than ASCII letters, digits, ``.``, ``_`` and ``-``, or is reserved.
    """
    if len(agent_id) > ID_LENGTH or not _ID.match(agent_id) or agent_id.endswith("."):
        raise Invalid(
            f"agent id {agent_id[:ID_LENGTH]!r}: use up to {ID_LENGTH} ASCII letters, digits, '.', '_' and '-'"
        )
    if is_reserved(agent_id):
        raise Invalid(f"agent id {agent_id!r} is reserved")
    return agent_id


def is_reserved(name: str) -> bool:
    """Whether Windows or a squad's own index would take this name, whatever its ending and its letters' case."""
    return name.partition(".")[0].strip().casefold() in RESERVED


def file_stem(name: str) -> str:
    """Return a name in kebab case, fit for a file on any system; empty when nothing is left of it."""
    plain = unicodedata.normalize("NFKC", name).casefold()
    stem = "-".join(_WORDS.findall(plain))
    while len(stem.encode()) > STEM_BYTES:
        stem = stem[:-1]
    stem = stem.rstrip("-")
    return "" if is_reserved(stem) else stem


def memory_stems(agents: Iterable[tuple[str, str]], known: Mapping[str, str]) -> dict[str, str]:
    """Return the name of each agent's memory file, without its ending.

    Args:
        agents: Ids and names, in lineup order.
        known: Names given before, by agent id; they stay, also when an agent is renamed.
    """
    listed = list(agents)
    stems = {agent_id: known[agent_id] for agent_id, _ in listed if agent_id in known}
    taken = {*known.values()}
    for agent_id, name in listed:
        if agent_id in stems:
            continue
        stem = file_stem(name) or "agent"
        if stem in taken or stem == "agent":
            stem = f"{stem}-{sha256(agent_id.encode()).hexdigest()[:8]}"
        stems[agent_id] = stem
        taken.add(stem)
    return stems
