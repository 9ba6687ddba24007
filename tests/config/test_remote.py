"""Agent files from URLs and registries: pulled once, pulled again, kept when a pull fails, and checked."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import httpx2
import pytest
import trio
import trio.testing

from actors.config.errors import ConfigError, SourceUnavailable
from actors.config.registry import Reference, registry_login
from actors.config.remote import remote_source, shown_url
from actors.config.watch import Watched
from actors.testing.stub_server import Reply, StubServer, raw
from tests.config.registry import needs_registry, push, registry

YAML = b"agents:\n  root:\n    model: openai/gpt-4o\n    description: %s\n    instruction: x\n"


def described(content: bytes) -> bytes:
    return YAML % content


@needs_registry
@pytest.mark.parametrize("zipped", [False, True])
async def test_an_artifact_is_pulled_by_tag_and_by_digest(tmp_path: Path, zipped: bool) -> None:
    async with registry(tmp_path) as host:
        digest = await push(host, "org/coder", "v1", described(b"one"), zipped=zipped)
        for reference in (f"{host}/org/coder:v1", f"{host}/org/coder@{digest}"):
            source = remote_source(reference)
            assert source is not None
            assert source.kind == "oci"
            assert await source.fetch() == described(b"one")


@needs_registry
async def test_a_refresh_takes_the_new_version_and_a_failed_one_keeps_the_old(tmp_path: Path) -> None:
    async with registry(tmp_path) as host:
        await push(host, "org/coder", "latest", described(b"one"))
        source = remote_source(f"{host}/org/coder")
        assert source is not None
        watched = Watched(source)
        assert (await watched.current()).config.first.description == "one"
        await push(host, "org/coder", "latest", described(b"two"))
        assert (await watched.current()).config.first.description == "one"
        await source.refresh()
        assert (await watched.current()).config.first.description == "two"
        await push(host, "org/coder", "latest", b"agents: [")
        await source.refresh()
        assert (await watched.current()).config.first.description == "two"
        assert watched.problem is not None
    await source.refresh()
    assert (await watched.current()).config.first.description == "two"


@needs_registry
async def test_what_a_registry_does_not_have_is_unavailable(tmp_path: Path) -> None:
    async with registry(tmp_path) as host:
        source = remote_source(f"{host}/org/nothing:v1")
        assert source is not None
        with pytest.raises(SourceUnavailable, match="404"):
            await source.stamp()
        await push(host, "org/big", "v1", b"x" * 3_000_000)
        big = remote_source(f"{host}/org/big:v1")
        assert big is not None
        with pytest.raises(ConfigError, match="larger"):
            await big.fetch()


async def test_a_registrys_challenge_is_answered_with_a_token(nursery: trio.Nursery) -> None:
    content = described(b"private")
    layer = "sha256:" + __import__("hashlib").sha256(content).hexdigest()
    manifest = json.dumps({"layers": [{"mediaType": "application/yaml", "digest": layer}]}).encode()
    address = ""

    def handle(request: object) -> Reply:
        path, headers = request.path, request.headers  # type: ignore[attr-defined]
        if path.startswith("/token"):
            assert "scope=repository%3Aorg%2Fcoder%3Apull" in path
            return raw(b'{"token": "t1"}')
        if headers.get("authorization") != "Bearer t1":
            challenge = f'Bearer realm="{address}/token",service="s",scope="repository:org/coder:pull"'
            return Reply([b"{}"], status=401, headers={"www-authenticate": challenge})
        return raw(manifest if "/manifests/" in path else content)

    address = await nursery.start(StubServer(handle).serve)
    source = remote_source(f"{address.removeprefix('http://')}/org/coder:v1")
    assert source is not None
    assert await source.fetch() == content


async def test_content_that_is_not_what_its_digest_says_is_refused(nursery: trio.Nursery) -> None:
    manifest = json.dumps({"layers": [{"mediaType": "application/yaml", "digest": "sha256:" + "0" * 64}]})
    server = StubServer(lambda request: raw(manifest.encode() if "/manifests/" in request.path else YAML))
    address = await nursery.start(server.serve)
    source = remote_source(f"{address.removeprefix('http://')}/org/coder:v1")
    assert source is not None
    with pytest.raises(ConfigError, match="what the registry sent is not sha256:000"):
        await source.fetch()


async def test_a_url_is_pulled_once_and_its_failure_told_for_a_while(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    del autojump_clock
    answers = [raw(b"no", status=500), raw(described(b"one"))]
    server = StubServer(answers)
    address = await nursery.start(server.serve)
    source = remote_source(f"{address}/agent.yaml?key=secret")
    assert source is not None
    for _ in range(2):
        with pytest.raises(SourceUnavailable, match="500") as failed:
            await source.stamp()
        assert "secret" not in str(failed.value)
    await trio.sleep(6)
    assert await source.fetch() == await source.fetch() == described(b"one")
    assert len(server.requests) == 2


def test_only_urls_and_references_are_remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "agent").write_bytes(YAML)
    for text in ("here/agent", "agent.yaml", "no/such.yml", "assistant", "coder", "My Agent/x"):
        assert remote_source(text) is None
    for text, kind in (("https://a.example/x", "url"), ("org/coder", "oci"), ("coder:v1", "oci")):
        source = remote_source(text)
        assert source is not None
        assert source.kind == kind


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("org/coder", "https://registry-1.docker.io/v2/org/coder/manifests/latest"),
        ("coder:v2", "https://registry-1.docker.io/v2/library/coder/manifests/v2"),
        ("ghcr.io/a/b/c:v1", "https://ghcr.io/v2/a/b/c/manifests/v1"),
        ("localhost:5000/a:v1", "http://localhost:5000/v2/a/manifests/v1"),
        ("r.example:443/a@sha256:" + "a" * 64, "https://r.example:443/v2/a/manifests/sha256:" + "a" * 64),
    ],
)
def test_a_reference_leads_to_its_registry(text: str, url: str) -> None:
    reference = Reference.parse(text)
    assert reference.url(f"manifests/{reference.version}") == url


def test_a_stored_login_is_used_and_a_strange_one_is_not(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps(
            {"auths": {"a.example": {"auth": "dTpw"}, "b.example": {"username": "u", "password": "p"}}}
        )
    )
    env = {"DOCKER_CONFIG": str(tmp_path)}
    assert registry_login("a.example", env) == {"Authorization": "Basic dTpw"}
    assert registry_login("b.example", env)["Authorization"] == "Basic " + base64.b64encode(b"u:p").decode()
    assert registry_login("c.example", env) == {}
    (tmp_path / "config.json").write_text("[]")
    assert registry_login("a.example", env) == {}


def test_a_shown_url_has_no_secrets() -> None:
    assert shown_url("https://u:p@a.example/x?token=s#f") == "https://a.example/x"
    assert httpx2.URL(shown_url("https://a.example/x")).host == "a.example"
