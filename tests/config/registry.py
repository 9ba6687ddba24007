"""Debian's ``docker-registry`` as a process on a free port, and pushing artifacts to it."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import socket
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
import trio

PROGRAM = shutil.which("docker-registry") or shutil.which("registry")
needs_registry = pytest.mark.skipif(PROGRAM is None, reason="no registry program is installed")
CONFIG = """\
version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {root}}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@asynccontextmanager
async def registry(folder: Path, extra: str = "") -> AsyncGenerator[str]:
    """Run a registry that keeps its things in ``folder`` and yield its ``host:port``."""
    assert PROGRAM is not None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = folder / "registry.yaml"
    config.write_text(CONFIG.format(root=folder / "blobs", port=port) + extra)
    process = await trio.lowlevel.open_process(
        [PROGRAM, "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        with trio.fail_after(20):
            while True:
                try:
                    await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()
                    break
                except OSError:
                    await trio.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        with trio.CancelScope(shield=True):  # bounded: a killed process ends
            await process.wait()


async def push(
    host: str,
    name: str,
    tag: str,
    content: bytes,
    *,
    zipped: bool = False,
    media_type: str = "application/yaml",
    headers: dict[str, str] | None = None,
) -> str:
    """Push an artifact of one layer and return its manifest's digest."""
    layer = gzip.compress(content) if zipped else content
    config = b"{}"
    async with httpx2.AsyncClient(headers=headers) as client:
        for blob in (layer, config):
            begun = await client.post(f"http://{host}/v2/{name}/blobs/uploads/")
            begun.raise_for_status()
            where = begun.headers["location"]
            url = where if where.startswith("http") else f"http://{host}{where}"
            joined = f"{url}{'&' if '?' in url else '?'}digest={digest_of(blob)}"
            (await client.put(joined, content=blob)).raise_for_status()
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": {
                    "mediaType": "application/vnd.oci.empty.v1+json",
                    "digest": digest_of(config),
                    "size": len(config),
                },
                "layers": [{"mediaType": media_type, "digest": digest_of(layer), "size": len(layer)}],
            }
        ).encode()
        put = await client.put(
            f"http://{host}/v2/{name}/manifests/{tag}",
            content=manifest,
            headers={"Content-Type": "application/vnd.oci.image.manifest.v1+json"},
        )
        put.raise_for_status()
    return digest_of(manifest)
