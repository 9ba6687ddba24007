"""The table of valid keys: a projection of the stream of keys, and the questions asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import apsw
import msgspec

from actors.auth.messages import AccessKey, AuthEvent, KeyIssued
from actors.journal.log import Record

STREAM = "auth/keys"
decoder: msgspec.json.Decoder[AuthEvent] = msgspec.json.Decoder(AuthEvent)
_ALL = "SELECT id, name, scopes, created_at FROM access_keys"


class KeyRows:
    """The projection; rows of table ``access_keys``."""

    name = "access_keys"
    migrations = str(Path(__file__).with_name("migrations"))

    def apply(self, db: apsw.Connection, records: Sequence[Record]) -> None:
        """Add issued keys and drop revoked ones, in the append's own transaction."""
        for record in records:
            if record.stream != STREAM:
                return
            event = decoder.decode(record.data)
            if isinstance(event, KeyIssued):
                row = (event.id, event.name, " ".join(event.scopes), event.digest, record.at)
                db.execute("INSERT INTO access_keys VALUES (?, ?, ?, ?, ?)", row)
            else:
                db.execute("DELETE FROM access_keys WHERE id = ?", (event.id,))

    def purge(self, db: apsw.Connection, stream: str) -> None:
        """Forget all keys when their stream goes."""
        if stream == STREAM:
            self.reset(db)

    def reset(self, db: apsw.Connection) -> None:
        """Forget everything, before the log is replayed."""
        db.execute("DELETE FROM access_keys")


def list_keys(db: apsw.Connection) -> Sequence[AccessKey]:
    """Return the valid keys, oldest first."""
    return [_key(row) for row in db.execute(_ALL + " ORDER BY created_at, id")]


def key_with(db: apsw.Connection, digest: bytes) -> AccessKey | None:
    """Return the valid key whose text has this digest."""
    row = db.execute(_ALL + " WHERE digest = ?", (digest,)).fetchone()
    return None if row is None else _key(row)


def _key(row: tuple[object, ...]) -> AccessKey:
    id_, name, scopes, created_at = row
    return msgspec.convert(
        {"id": id_, "name": name, "scopes": str(scopes).split(), "created_at": created_at}, AccessKey
    )
