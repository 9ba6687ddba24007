"""When a stream's writer should keep a snapshot; the log stores it, the writer knows what is in it."""

from __future__ import annotations

from msgspec import Struct


class Cadence(Struct, frozen=True):
    """A snapshot is due once the replay it saves costs more than writing it.

    Attributes:
        records: Records since the last snapshot from which on one is due.
        bytes: Their total size from which on one is due, and at least the size of the snapshot itself, so that a
            large state is not rewritten for every few small records.
    """

    records: int = 500
    bytes: int = 1 << 20

    def due(self, records: int, size: int, snapshot_size: int = 0) -> bool:
        """Tell whether to keep a snapshot now.

        Args:
            records: How many were written since the last snapshot.
            size: How many bytes those hold.
            snapshot_size: How many bytes the last snapshot had; 0 when there is none.
        """
        return (records >= self.records or size >= self.bytes) and size >= snapshot_size
