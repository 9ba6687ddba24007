"""Issuing, listing, revoking and recognising access keys. A key's text is shown once and never stored."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Collection, Sequence
from functools import partial

import msgspec
import trio
from msgspec import Struct

from actors.auth import queries
from actors.auth.messages import SCOPES, AccessKey, AuthEvent, KeyIssued, KeyRevoked, ScopeName
from actors.errors import Invalid, NotFound
from actors.ids import new_id
from actors.journal.log import Append, EventLog, NewRecord, SequenceConflict

PREFIX = "grk_"
"""Begins every key, so that secret scanners and people recognise one."""
MAX_NAME = 200
REMEMBERED_SECONDS = 1.0
"""How long a recognised key is believed without asking the journal; another process may have revoked it."""
_REMEMBERED = 1024


class Issued(Struct, frozen=True):
    """A new key with its text, which cannot be had again."""

    key: AccessKey
    text: str


class Keys:
    """The keys of one journal.

    Args:
        log: The journal; :class:`actors.auth.queries.KeyRows` is registered with it.
        clock: Seconds since the epoch, for records.
    """

    def __init__(self, log: EventLog, clock: Callable[[], float]) -> None:
        self._log = log
        self._clock = clock
        self._writing = trio.Lock()
        self._known: dict[bytes, tuple[AccessKey, float]] = {}
        self._revoked: set[str] = set()

    async def issue(self, name: str, scopes: Collection[ScopeName]) -> Issued:
        """Make and store a key.

        Args:
            name: What people call it; need not be unique.
            scopes: What it permits; order and repetitions do not matter.

        Raises:
            Invalid: the name is blank or too long, or there are no scopes.
            JournalUnavailable: nothing was stored.
        """
        name = name.strip()
        if not name:
            raise Invalid("invalid input: name must not be blank")
        if len(name) > MAX_NAME:
            raise Invalid(f"invalid input: name exceeds {MAX_NAME} characters")
        if not scopes:
            raise Invalid(f"invalid input: scopes must name at least one of {', '.join(sorted(SCOPES))}")
        text = PREFIX + secrets.token_urlsafe(32)
        event = KeyIssued(new_id("key"), name, tuple(sorted(set(scopes))), digest_of(text))
        at = self._clock()
        async with self._writing:
            await self._append(event, at)
        return Issued(AccessKey(event.id, event.name, event.scopes, at), text)

    async def list(self) -> Sequence[AccessKey]:
        """Return the valid keys, oldest first."""
        return await self._log.query(queries.list_keys)

    async def revoke(self, key_id: str) -> None:
        """Have a key refused from now on.

        Raises:
            NotFound: there is no such key.
            JournalUnavailable: it is still valid.
        """
        async with self._writing:
            if all(key.id != key_id for key in await self.list()):
                raise NotFound(f"access key {key_id} not found")
            await self._append(KeyRevoked(key_id), self._clock())
            self._revoked.add(key_id)
            self._known.clear()

    def was_revoked(self, key_id: str) -> bool:
        """Say whether this process revoked a key, for those who go on serving it without asking anew."""
        return key_id in self._revoked

    async def recognise(self, text: str) -> AccessKey | None:
        """Return the valid key with this text, ``None`` when there is none."""
        return await self.with_digest(digest_of(text))

    async def with_digest(self, digest: bytes) -> AccessKey | None:
        """Return the valid key whose text has this digest.

        A revocation counts at once in this process, and within :data:`REMEMBERED_SECONDS` in others.
        """
        now = trio.current_time()
        known = self._known.get(digest)
        if known is not None and now < known[1]:
            return known[0]
        revoked = len(self._revoked)
        # A key's text is 256 random bits: finding its digest in an index tells a guesser nothing.
        key = await self._log.query(partial(queries.key_with, digest=digest))
        if key is None:
            self._known.pop(digest, None)
        elif revoked == len(self._revoked):
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[digest] = (key, now + REMEMBERED_SECONDS)
        return key

    async def _append(self, event: AuthEvent, at: float) -> None:
        while True:
            head = await self._log.head(queries.STREAM)
            kind = str(type(event).__struct_config__.tag)
            record = NewRecord(head.seq + 1, kind, msgspec.json.encode(event), at)
            try:
                await self._log.append(Append(stream=queries.STREAM, expected=head.seq, records=(record,)))
            except SequenceConflict:
                continue  # another process on this journal wrote first
            return


def digest_of(text: str) -> bytes:
    """Return what is stored of a key's text. Its entropy makes a slow hash pointless."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
