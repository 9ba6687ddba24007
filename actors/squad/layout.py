"""A squad's workspace as a directory: laid out, looked at, archived, removed, and read back. Synchronous."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from actors.errors import Conflict, Invalid, NotFound, Unavailable
from actors.squad import disk
from actors.squad.requests import ManifestHead, PathVerdict, WorkspaceStatus
from actors.squad.values import Squad, Wire
from actors.tools.tool import ToolError
from actors.tools.workspace import Place, WalkFilter, Workspace, open_directory, remove_tree, walk

JSON = Any
MANIFEST = ".squad.json"
OLD_MANIFEST = ".squad-config.json"
DIRECTORIES = ("plans", "tasks", "memory", "artifacts", "logs", "sessions")
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Manifest(Wire, frozen=True, kw_only=True):
    """What ``.squad.json`` holds: enough to move the directory to another machine."""

    squad_id: str
    squad_name: str
    initialized_at: str
    app_version: str
    config: Squad


def look(text: str, owner: str | None) -> PathVerdict:
    """Tell whether a directory can be a workspace; makes nothing.

    Args:
        text: A checked absolute path.
        owner: The squad whose workspace it is already.
    """
    path = Path(text)
    exists, problem, empty = path.exists(), "", True
    if exists and not path.is_dir():
        problem = "this is a file"
    elif exists:
        try:
            empty = next(path.iterdir(), None) is None
            problem = _clash(path)
        except OSError as error:
            problem = f"the directory cannot be read: {os.strerror(error.errno or 0).lower()}"
    ground = path
    while not ground.exists():
        ground = ground.parent
    writable = ground.is_dir() and os.access(ground, os.W_OK | os.X_OK)
    if not problem and not writable:
        problem = "the directory cannot be written" if exists else f"nothing can be made in {ground}"
    if not problem and owner:
        problem = f"the directory belongs to squad {owner}"
    return PathVerdict(
        valid=not problem,
        exists=exists,
        writable=writable,
        is_empty=empty,
        in_use_by_squad_id=owner,
        message=problem or None,
    )


def _clash(path: Path) -> str:
    """Say what stands where a part of the layout must be; nothing when all is well."""
    ours = {name.casefold(): name for name in DIRECTORIES}
    for entry in path.iterdir():
        name = ours.get(entry.name.casefold())
        if name is None:
            continue
        if entry.name != name:
            return f"{entry.name!r} differs from the squad's own {name!r} only by upper and lower case"
        if entry.is_symlink() or not entry.is_dir():
            return f"{entry.name!r} is not a directory"
    return ""


def initialize(squad: Squad, now: str, version: str) -> WorkspaceStatus:
    """Lay a squad's workspace out; what is there already stays, the manifest is made anew.

    Raises:
        Invalid: it cannot be a workspace.
        OSError: the disk refuses.
    """
    path = Path(squad.workspace_path)
    verdict = look(squad.workspace_path, None)
    if not verdict.valid:
        raise Invalid(f"{path}: {verdict.message}")
    path.mkdir(parents=True, exist_ok=True)
    for name in DIRECTORIES:
        with open_directory(Place(path, (name,)), create=True):
            pass
    known = read_head(path)
    began = known.initialized_at if known and known.squad_id == squad.id else now
    write_manifest(squad, began or now, version)
    return look_inside(squad)


def write_manifest(squad: Squad, initialized_at: str, version: str) -> None:
    """Write the manifest. Raises: OSError."""
    manifest = Manifest(
        squad_id=squad.id,
        squad_name=squad.name,
        initialized_at=initialized_at,
        app_version=version,
        config=squad,
    )
    disk.write_json(Path(squad.workspace_path), [MANIFEST], manifest)


def refresh_manifest(squad: Squad, version: str) -> None:
    """Bring the manifest up to date if the workspace is laid out and this squad's. Raises: OSError."""
    head = read_head(Path(squad.workspace_path))
    if head is not None and head.squad_id == squad.id:
        write_manifest(squad, head.initialized_at, version)


def read_head(path: Path) -> ManifestHead | None:
    """Return what a workspace's manifest says of itself; nothing when there is none that can be read."""
    try:
        data = disk.read_file(path, [MANIFEST])
        return msgspec.json.decode(data, type=ManifestHead) if data is not None else None
    except (OSError, msgspec.DecodeError):
        return None


def look_inside(squad: Squad) -> WorkspaceStatus:
    """Return which parts of a squad's workspace there are."""
    path = Path(squad.workspace_path)
    present = {name: _is_directory(path / name) for name in DIRECTORIES}
    manifest = (path / MANIFEST).is_file()
    missing = [name for name, there in present.items() if not there]
    return WorkspaceStatus(
        path=squad.workspace_path,
        exists=path.is_dir(),
        initialized=manifest and not missing,
        manifest_present=manifest,
        directories=present,
        missing=tuple(missing if manifest else [MANIFEST, *missing]),
    )


def _is_directory(path: Path) -> bool:
    with suppress(OSError):
        return stat.S_ISDIR(path.lstat().st_mode)
    return False


# --- restoring --------------------------------------------------------------------------------------------------


def read_manifest(path: Path) -> tuple[ManifestHead, JSON]:
    """Return a workspace's manifest: what it says of itself and the squad's configuration, unchecked.

    Raises:
        NotFound: there is none.
        Invalid: it cannot be read.
    """
    try:
        data = disk.read_file(path, [MANIFEST])
        if data is None:
            data = disk.read_file(path, [OLD_MANIFEST])
    except OSError as error:
        raise Invalid(f"the manifest in {path} cannot be read: {error}") from error
    if data is None:
        raise NotFound(f"{path} has no {MANIFEST}")
    try:
        raw = msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise Invalid(f"the manifest in {path} cannot be read: {error}") from error
    try:
        config = msgspec.convert(raw.get("config", raw), dict[str, Any])
    except msgspec.ValidationError as error:
        raise Invalid(f"the manifest in {path} holds no squad: {error}") from error
    head = {
        "squadId": raw.get("squadId") or config.get("id") or "",
        "squadName": raw.get("squadName") or config.get("name") or "",
        "appVersion": raw.get("appVersion") or "",
        "initializedAt": raw.get("initializedAt") or "",
    }
    try:
        return msgspec.convert(head, ManifestHead), config
    except msgspec.ValidationError as error:
        raise Invalid(f"the manifest in {path} cannot be read: {error}") from error


# --- removing ---------------------------------------------------------------------------------------------------


def check_removable(squad: Squad) -> Path:
    """Return the real path of a squad's workspace if it may be removed.

    Raises:
        Conflict: it has no manifest, or another squad's.
    """
    path = Path(os.path.realpath(squad.workspace_path))
    head = read_head(path)
    if head is None:
        raise Conflict(f"{path} has no {MANIFEST} that can be read; it is not removed")
    if head.squad_id != squad.id:
        raise Conflict(f"{path} is the workspace of squad {head.squad_id}; it is not removed")
    return path


def remove(squad: Squad) -> None:
    """Remove a squad's workspace; links in it are removed, not followed.

    Raises:
        Conflict: as :func:`check_removable`.
        Unavailable: the disk refuses; some of it may be gone.
    """
    path = check_removable(squad)
    try:
        remove_tree(Place(path.parent, (path.name,)), str(path))
    except ToolError as error:
        raise Unavailable(error.message) from error


def archive(squad: Squad, target: Path) -> None:
    """Pack a squad's workspace into a new ``.tar.gz``; links and special files are left out.

    Raises:
        Conflict: as :func:`check_removable`.
        OSError: the disk refuses; nothing is left behind.
    """
    root = check_removable(squad)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        with tarfile.open(temporary, "x:gz", compresslevel=6) as tar:
            for place, entry in walk(Place(root, ()), WalkFilter(Workspace(root))):
                _add(tar, place, entry.kind)
        temporary.replace(target)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _add(tar: tarfile.TarFile, place: Place, kind: str) -> None:
    info = tarfile.TarInfo("/".join(place.names))
    if kind == "directory":
        info.type, info.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(info)
    elif kind == "file":
        with open_directory(Place(place.root, place.names[:-1])) as directory:
            descriptor = os.open(place.names[-1], _FILE, dir_fd=directory)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode):
                info.size, info.mtime, info.mode = status.st_size, status.st_mtime, status.st_mode & 0o777
                tar.addfile(info, _Padded(file, status.st_size))


class _Padded(io.RawIOBase):
    """A file's first ``size`` bytes, with zeros for what it loses while it is read."""

    def __init__(self, file: io.BufferedReader, size: int) -> None:
        super().__init__()
        self._file = file
        self._left = size

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        data = self._file.read(wanted)
        data += bytes(wanted - len(data))
        self._left -= wanted
        return data
