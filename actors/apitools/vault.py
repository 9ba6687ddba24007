"""Secrets at rest: sealed with AES-256-GCM under a key that is not in the database."""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from actors.errors import Unavailable

_FILE = "secret.key"
_NONCE = 12


class Vault:
    """Seals and opens texts.

    The key is made of a phrase the operator gives, else kept in ``<data dir>/secret.key``, which is made
    when first needed and readable by its owner only.

    Args:
        data_dir: Where the key file is.
        phrase: What the key is made of; empty for the file.
    """

    def __init__(self, data_dir: Path, phrase: str = "") -> None:
        self._path = data_dir / _FILE
        self._phrase = phrase
        self._cipher: AESGCM | None = None

    def seal(self, text: str, owner: str) -> str:
        """Return the sealed text; it opens only for the same ``owner``. Raises: Unavailable without a key."""
        nonce = secrets.token_bytes(_NONCE)
        return base64.b64encode(nonce + self._key().encrypt(nonce, text.encode(), owner.encode())).decode()

    def open(self, sealed: str, owner: str) -> str:
        """Return the text. Raises: Unavailable when it was sealed under another key or for another owner."""
        try:
            data = base64.b64decode(sealed)
            return self._key().decrypt(data[:_NONCE], data[_NONCE:], owner.encode()).decode()
        except (InvalidTag, ValueError) as error:
            raise Unavailable(
                "the stored credentials cannot be read with this server's key; set them again"
            ) from error

    def _key(self) -> AESGCM:
        if self._cipher is None:
            self._cipher = AESGCM(
                hashlib.sha256(self._phrase.encode()).digest() if self._phrase else self._file()
            )
        return self._cipher

    def _file(self) -> bytes:
        """Return the key file's content; of two processes that make it at once, the first one's counts."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fresh = self._path.with_name(f"{_FILE}.{secrets.token_hex(4)}")
            if not self._path.exists():
                descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(secrets.token_bytes(32))
                    file.flush()
                    os.fsync(file.fileno())
                with suppress(FileExistsError):
                    os.link(fresh, self._path)
                fresh.unlink()
            key = self._path.read_bytes()
        except OSError as error:
            raise Unavailable(
                f"the key for stored credentials cannot be read or made ({error.strerror})"
            ) from error
        if len(key) != 32:
            raise Unavailable("the key file for stored credentials is damaged")
        return key
