"""The OCI distribution protocol, as far as pulling an agent file needs it: references, tokens, manifests, blobs."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import os
import re
import zlib
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path

import httpx2
import msgspec
from msgspec import Struct, field

from actors.config import yaml
from actors.config.errors import ConfigError, SourceUnavailable

DEFAULT_REGISTRY = "docker.io"
_HOSTS = {"docker.io": "registry-1.docker.io", "index.docker.io": "registry-1.docker.io"}
INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
ACCEPTED = ", ".join((MANIFEST, DOCKER_MANIFEST, INDEX, DOCKER_INDEX))
MAX_MANIFEST = 4 * 1024 * 1024
OK, UNAUTHORIZED = 200, 401
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')
_GZIP = b"\x1f\x8b"


class Reference(Struct, frozen=True):
    """Where an artifact is: ``[registry/]name[:tag][@digest]``.

    Attributes:
        registry: Host and port.
        name: Repository.
        version: Digest, else tag.
    """

    registry: str
    name: str
    version: str

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Return the reference in a text; its first part is a registry if it looks like a host."""
        first, slash, rest = text.partition("/")
        registry, name = DEFAULT_REGISTRY, text
        if slash and ("." in first or ":" in first or first == "localhost"):
            registry, name = first, rest
        name, _, digest = name.partition("@")
        name, _, tag = name.partition(":")
        if registry == DEFAULT_REGISTRY and "/" not in name:
            name = f"library/{name}"
        return cls(registry, name, digest or tag or "latest")

    def __str__(self) -> str:
        return f"{self.registry}/{self.name}{'@' if ':' in self.version else ':'}{self.version}"

    def url(self, what: str) -> str:
        """Return the URL of a manifest or blob. Registries on this machine are spoken to without TLS."""
        host = _HOSTS.get(self.registry, self.registry)
        return f"{'http' if _is_local(host) else 'https'}://{host}/v2/{self.name}/{what}"


class Descriptor(Struct):
    """A part of a manifest."""

    digest: str
    mediaType: str = ""  # noqa: N815 - the wire's name
    size: int = 0


class Manifest(Struct):
    """A manifest, or an index of manifests."""

    layers: list[Descriptor] = field(default_factory=list[Descriptor])
    manifests: list[Descriptor] = field(default_factory=list[Descriptor])


class Token(Struct):
    """A token server's answer, which calls it either name."""

    token: str = ""
    access_token: str = ""


async def pull(client: httpx2.AsyncClient, reference: Reference) -> bytes:
    """Return the agent file in an artifact: its layer of YAML, or its only layer. Digests are verified.

    Raises:
        SourceUnavailable: the registry does not give it.
        ConfigError: it is no agent file, or not what its digest says.
    """
    session = _Session(client, reference)
    manifest = await session.manifest(reference.version)
    if manifest.manifests and not manifest.layers:
        manifest = await session.manifest(manifest.manifests[0].digest)
    named = [layer for layer in manifest.layers if "yaml" in layer.mediaType]
    if not named and len(manifest.layers) != 1:
        raise ConfigError(f"the artifact has {len(manifest.layers)} layers and none of YAML", str(reference))
    layer = (named or manifest.layers)[0]
    content = await session.get(f"blobs/{layer.digest}", {}, yaml.MAX_BYTES)
    _verify(content, layer.digest, str(reference))
    return _unzipped(content, str(reference)) if content.startswith(_GZIP) else content


class _Session:
    """Requests to one repository, with the token that the registry's first answer asks for."""

    def __init__(self, client: httpx2.AsyncClient, reference: Reference) -> None:
        self._client = client
        self._reference = reference
        self._authorization: dict[str, str] = {}

    async def manifest(self, version: str) -> Manifest:
        """Return a manifest."""
        content = await self.get(f"manifests/{version}", {"Accept": ACCEPTED}, MAX_MANIFEST)
        if ":" in version:
            _verify(content, version, str(self._reference))
        try:
            return msgspec.json.decode(content, type=Manifest)
        except msgspec.DecodeError as error:
            raise ConfigError(
                f"the registry's manifest cannot be read: {error}", str(self._reference)
            ) from None

    async def get(self, what: str, headers: Mapping[str, str], limit: int) -> bytes:
        """Return a body of at most ``limit`` bytes; a challenge is answered once."""
        url = self._reference.url(what)
        for attempt in (1, 2):
            async with self._client.stream(
                "GET", url, headers={**headers, **self._authorization}
            ) as response:
                if response.status_code == UNAUTHORIZED and attempt == 1:
                    challenge = response.headers.get("www-authenticate", "")
                elif response.status_code == OK:
                    return await read_limited(response, limit, str(self._reference))
                else:
                    raise self._refused(response.status_code)
            self._authorization = await self._answer(challenge)
        raise self._refused(UNAUTHORIZED)

    async def _answer(self, challenge: str) -> dict[str, str]:
        scheme, _, rest = challenge.partition(" ")
        login = registry_login(self._reference.registry)
        if scheme.lower() == "basic" and login:
            return login
        parameters = dict(_PARAMETER.findall(rest))
        realm = parameters.pop("realm", "")
        if scheme.lower() != "bearer" or not realm.startswith(("https://", "http://")):
            raise self._refused(UNAUTHORIZED)
        parameters.setdefault("scope", f"repository:{self._reference.name}:pull")
        answer = await self._client.get(realm, params=parameters, headers=login)
        if answer.status_code != OK:
            raise self._refused(answer.status_code)
        try:
            token = msgspec.json.decode(answer.content, type=Token)
        except msgspec.DecodeError:
            raise self._refused(UNAUTHORIZED) from None
        return {"Authorization": f"Bearer {token.token or token.access_token}"}

    def _refused(self, status: int) -> SourceUnavailable:
        return SourceUnavailable(f"its registry answered {status}", str(self._reference))


async def read_limited(response: httpx2.Response, limit: int, name: str) -> bytes:
    """Return a response's body, read no further than ``limit`` bytes. Raises: ConfigError, when there is more."""
    too_large = ConfigError(f"it is larger than {limit} bytes", name)
    claimed = response.headers.get("content-length", "")
    if claimed.isdecimal() and int(claimed) > limit:
        raise too_large
    parts: list[bytes] = []
    size = 0
    async with aclosing(response.aiter_bytes()) as body:
        async for part in body:
            size += len(part)
            if size > limit:
                raise too_large
            parts.append(part)
    return b"".join(parts)


def registry_login(registry: str, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the header for what ``docker login`` has stored for a registry; empty when it has nothing in plain."""
    env = os.environ if environment is None else environment
    folder = Path(env.get("DOCKER_CONFIG") or Path(env.get("HOME", "/")) / ".docker")
    try:
        auths = msgspec.json.decode((folder / "config.json").read_bytes()).get("auths", {})
    except (OSError, msgspec.DecodeError, AttributeError):
        return {}
    for name in (registry, f"https://{registry}", f"https://index.{registry}/v1/"):
        entry = auths.get(name, {})
        if entry.get("auth"):
            return {"Authorization": f"Basic {entry['auth']}"}
        if entry.get("username"):
            plain = f"{entry['username']}:{entry.get('password', '')}".encode()
            return {"Authorization": f"Basic {base64.b64encode(plain).decode()}"}
    return {}


def _verify(content: bytes, digest: str, name: str) -> None:
    algorithm, _, expected = digest.partition(":")
    if algorithm != "sha256" or hashlib.sha256(content).hexdigest() != expected:
        raise ConfigError(f"what the registry sent is not {digest}", name)


def _unzipped(content: bytes, name: str) -> bytes:
    unzip = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        text = unzip.decompress(content, yaml.MAX_BYTES + 1)
    except zlib.error as error:
        raise ConfigError(f"the artifact cannot be decompressed: {error}", name) from None
    if len(text) > yaml.MAX_BYTES:
        raise ConfigError(f"the artifact is larger than {yaml.MAX_BYTES} bytes", name)
    return text


def _is_local(host: str) -> bool:
    name = host.rpartition(":")[0] or host
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False
