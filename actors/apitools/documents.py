"""Saving and reading the room's documents: one journal stream each, whose last event is the document."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from actors.apitools import queries
from actors.apitools.messages import DocumentKind, DocumentSaved, Page
from actors.errors import NotFound
from actors.journal.log import Append, EventLog, NewRecord

D = TypeVar("D", bound=Struct)


class Documents(Generic[D]):
    """Documents of one kind.

    Args:
        log: The journal.
        kind: Which.
        of_type: Their struct.
        clock: Seconds since the epoch.
    """

    def __init__(
        self, log: EventLog, kind: DocumentKind, of_type: type[D], clock: Callable[[], float]
    ) -> None:
        self._log = log
        self._kind: DocumentKind = kind
        self._decode = msgspec.json.Decoder(of_type).decode
        self._clock = clock

    async def save(self, document_id: str, document: D, *, name: str = "", created_at: int = 0) -> None:
        """Store a document as a whole. Raises: SequenceConflict when another writer came between."""
        stream = self._stream(document_id)
        head = await self._log.head(stream)
        event = DocumentSaved(
            self._kind, document_id, name, created_at, msgspec.json.encode(document).decode()
        )
        record = NewRecord(
            max(head.seq, head.reserved) + 1, "api_document_saved", msgspec.json.encode(event), self._clock()
        )
        await self._log.append(Append(stream=stream, expected=head.seq, records=(record,)))

    async def get(self, document_id: str) -> D:
        """Return a document. Raises: NotFound."""
        data = await self._log.query(partial(queries.read_document, kind=self._kind, document_id=document_id))
        if data is None:
            raise NotFound(f"{self._kind.replace('_', ' ')} {document_id} not found")
        return self._decode(data)

    async def all(self) -> list[D]:
        """Return every document, oldest first."""
        return [
            self._decode(data)
            for data in await self._log.query(partial(queries.all_documents, kind=self._kind))
        ]

    async def page(self, *, limit: int, cursor: str, descending: bool, search: str) -> Page:
        """Return some of the documents. Raises: Invalid for a foreign cursor."""
        rows, total, following = await self._log.query(
            partial(
                queries.page_of_documents,
                kind=self._kind,
                limit=limit,
                cursor=cursor,
                descending=descending,
                search=search,
            )
        )
        return Page(tuple(self._decode(row) for row in rows), total, following)

    async def delete(self, document_id: str) -> None:
        """Delete a document for good."""
        await self._log.purge(self._stream(document_id))

    def _stream(self, document_id: str) -> str:
        return f"{queries.DOCUMENTS}{self._kind}/{document_id}"
