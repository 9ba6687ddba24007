"""Catalogues of templates elsewhere: which there are, and templates installed from them once they are verified."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
import trio
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from msgspec import Struct
from msgspec.structs import asdict, replace

from actors.errors import Conflict, Invalid, NotFound, Unavailable
from actors.squad import disk
from actors.squad.paths import check_relative
from actors.squad.refusals import UnverifiedTemplate
from actors.squad.requests import (
    AddSource,
    InstalledTemplate,
    InstallTemplate,
    RegistrySource,
    Verification,
)
from actors.squad.templates import FILE_LIMIT, Templates, parse
from actors.squad.values import Wire
from actors.tools.egress import Egress
from actors.tools.tool import ToolError
from actors.tools.workspace import Workspace, read_bytes

JSON = Any
T = TypeVar("T")
SOURCES = "sources.json"
INDEX = "index.json"
FETCH_SECONDS = 30.0
SOURCES_LIMIT = 100
_HEX_KEY = re.compile(r"[0-9a-fA-F]{64}\Z")


class Entry(Wire, frozen=True, kw_only=True):
    """What a catalogue says of one file."""

    path: str
    name: str = ""
    kind: str = "agent_profile"
    checksum: str | None = None
    signature: str | None = None


class Index(Struct, frozen=True):
    """A source's ``index.json``."""

    profiles: tuple[Entry, ...] = ()


class Fetch(Protocol):
    """Gets what is at a URL."""

    async def __call__(self, url: str) -> bytes:
        """Return the body. Raises: NotFound, there is nothing; Unavailable, no answer."""
        ...


async def fetch(url: str) -> bytes:
    """Get a URL of the public internet. Raises: NotFound, Unavailable."""
    try:
        response = await Egress().request("GET", url, seconds=FETCH_SECONDS, limit=FILE_LIMIT)
    except ToolError as error:
        raise Unavailable(f"the source cannot be reached: {error.message}") from error
    if response.status in (404, 410):
        raise NotFound(f"{url} does not exist")
    if response.status != 200:
        raise Unavailable(f"{url} answered with status {response.status}")
    if urlsplit(response.url).scheme != "https":
        raise Unavailable(f"{url} led to {response.url}, which is not https")
    return response.body


class Registry:
    """The sources of a server.

    Args:
        directory: Where their list is kept; made when the first is added.
        templates: Where installed templates go.
        new_id: Makes ids.
        now: Returns the time as a text.
        get: Fetches from https sources.
    """

    def __init__(
        self,
        directory: Path,
        templates: Templates,
        new_id: Callable[[], str],
        now: Callable[[], str],
        get: Fetch = fetch,
    ) -> None:
        self._directory = directory
        self._templates = templates
        self._new_id = new_id
        self._now = now
        self._get = get
        self._lock = trio.Lock()

    async def sources(self) -> Sequence[RegistrySource]:
        """Return the sources in the order in which they were added. Raises: Unavailable."""
        return await _on_disk(partial(_read_sources, self._directory))

    async def add_source(self, given: AddSource) -> RegistrySource:
        """Add a source.

        Raises:
            Invalid: a blank name, a URL that is neither https nor an absolute folder, or no key where one is needed.
            Conflict: the URL is there already.
        """
        source = RegistrySource(
            id=self._new_id(), created_at=self._now(), **asdict(replace(given, name=given.name.strip()))
        )
        if not source.name:
            raise Invalid("name is blank")
        source = replace(source, url=_checked_url(source.url))
        if source.public_key is not None:
            load_key(source.public_key)
        elif source.require_verification:
            raise Invalid("requireVerification needs a publicKey: without one nothing can be verified")
        async with self._lock:
            known = await self.sources()
            if any(each.url == source.url for each in known):
                raise Conflict(f"{source.url} is a source already")
            if len(known) >= SOURCES_LIMIT:
                raise Conflict(f"there are {SOURCES_LIMIT} sources already")
            await self._write([*known, source])
        return source

    async def remove_source(self, source_id: str) -> None:
        """Remove a source; what was installed from it stays. Raises: NotFound."""
        async with self._lock:
            known = await self.sources()
            left = [source for source in known if source.id != source_id]
            if len(left) == len(known):
                raise NotFound(f"source {source_id} not found")
            await self._write(left)

    async def install(self, given: InstallTemplate) -> InstalledTemplate:
        """Get a template from a source, verify it and store it.

        Raises:
            Invalid: the path is not a plain relative one, or the file is no template.
            NotFound: no such source, or nothing at that path.
            UnverifiedTemplate: its checksum or signature is wrong, or missing where the source requires one.
            Unavailable: the source cannot be reached.
        """
        names = check_relative(given.path)
        if not names or "\\" in given.path:
            raise Invalid(f"path {given.path!r} is not a plain relative path")
        path = "/".join(names)
        source = _chosen(await self.sources(), given.source_id)
        entry = await self._entry(source, path)
        data = await self._read(source, path)
        verification = verify(data, entry, source)
        parse(data)
        url = f"{source.url}/{quote(path)}"
        stored = await self._templates.add(
            msgspec.json.decode(data), source_url=url, installed_at=self._now()
        )
        return InstalledTemplate(**asdict(stored), verification=verification)

    async def _entry(self, source: RegistrySource, path: str) -> Entry:
        try:
            index = msgspec.json.decode(await self._read(source, INDEX), type=Index)
        except msgspec.DecodeError as error:
            raise Unavailable(f"the index of source {source.name!r} cannot be read: {error}") from error
        for entry in index.profiles:
            if entry.path == path:
                if entry.kind != "squad_template":
                    raise Invalid(f"{path} is of kind {entry.kind}, not a squad_template")
                return entry
        raise NotFound(f"source {source.name!r} has no {path}")

    async def _read(self, source: RegistrySource, path: str) -> bytes:
        if source.url.startswith("https://"):
            return await self._get(f"{source.url}/{quote(path)}")
        return await trio.to_thread.run_sync(_read_local, Path(source.url), path)

    async def _write(self, sources: Sequence[RegistrySource]) -> None:
        def act() -> None:
            self._directory.mkdir(parents=True, exist_ok=True)
            disk.write_json(self._directory, [SOURCES], sources)

        await _on_disk(act)


# --- verification -----------------------------------------------------------------------------------------------


def verify(data: bytes, entry: Entry, source: RegistrySource) -> Verification:
    """Return what vouches for a file, by the table of squads contract 3.14.

    Raises:
        UnverifiedTemplate: what is there is wrong, or something is missing that the source requires.
    """
    if entry.checksum is not None:
        _check_sum(data, entry.checksum)
    key = load_key(source.public_key) if source.public_key else None
    if entry.signature is not None and key is not None:
        _check_signature(data, entry.signature, key)
    missing = [
        name
        for name, there in (("checksum", entry.checksum), ("signature", entry.signature), ("publicKey", key))
        if there is None
    ]
    if not missing:
        return "verified"
    if source.require_verification:
        raise UnverifiedTemplate(
            f"{entry.path}: source {source.name!r} requires verification, and there is no {missing[0]}"
        )
    return "trusted" if entry.checksum is not None else "unverified"


def _check_sum(data: bytes, checksum: str) -> None:
    kind, _, digest = checksum.strip().partition(":")
    if kind.lower() != "sha256":
        raise UnverifiedTemplate(f"checksum {checksum[:100]!r} is not a sha256")
    right = hashlib.sha256(data).hexdigest()
    if not hmac.compare_digest(digest.strip().lower().encode(), right.encode()):
        raise UnverifiedTemplate("the checksum does not match the file")


def _check_signature(data: bytes, signature: str, key: Ed25519PublicKey) -> None:
    try:
        key.verify(base64.b64decode(signature.strip(), validate=True), data)
    except (InvalidSignature, binascii.Error, ValueError) as error:
        raise UnverifiedTemplate("the signature does not match the file and the source's key") from error


def load_key(text: str) -> Ed25519PublicKey:
    """Return the key that a base64, hexadecimal or PEM text is. Raises: Invalid."""
    plain = text.strip()
    try:
        if plain.startswith("-----BEGIN"):
            key = load_pem_public_key(plain.encode())
            if isinstance(key, Ed25519PublicKey):
                return key
            raise Invalid("publicKey is not an Ed25519 key")
        raw = bytes.fromhex(plain) if _HEX_KEY.match(plain) else base64.b64decode(plain, validate=True)
        return Ed25519PublicKey.from_public_bytes(raw)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise Invalid("publicKey is not an Ed25519 key in base64, hexadecimal or PEM") from error


# --- files ------------------------------------------------------------------------------------------------------


def _checked_url(text: str) -> str:
    url = text.strip()
    if url.startswith("/"):
        if ".." in url.split("/") or not Path(url).is_dir():
            raise Invalid(f"{url} is not a folder")
        return url.rstrip("/") or "/"
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise Invalid(f"url {url!r} is not valid") from error
    if parts.scheme != "https" or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise Invalid("url must be https, without user, query and fragment, or an absolute folder")
    return url.rstrip("/")


def _chosen(sources: Sequence[RegistrySource], source_id: str | None) -> RegistrySource:
    for source in sources:
        if source.id == source_id or (source_id is None and source.enabled):
            if not source.enabled:
                raise Conflict(f"source {source.name!r} is not enabled")
            return source
    raise NotFound(f"source {source_id} not found" if source_id else "there is no enabled source")


def _read_local(root: Path, path: str) -> bytes:
    try:
        return read_bytes(Workspace(root).place(path), path, FILE_LIMIT)[0]
    except ToolError as error:
        raise NotFound(f"{root}: {error.message}") from error


def _read_sources(directory: Path) -> tuple[RegistrySource, ...]:
    data = disk.read_file(directory, [SOURCES])
    try:
        return msgspec.json.decode(data, type=tuple[RegistrySource, ...]) if data is not None else ()
    except msgspec.DecodeError as error:
        raise Unavailable(f"the list of sources cannot be read: {error}") from error


async def _on_disk(act: Callable[[], T]) -> T:
    try:
        return await trio.to_thread.run_sync(act)
    except OSError as error:
        raise Unavailable(f"the registry's directory cannot be used: {error}") from error
