"""Which finished jobs a prune deletes, and how much space the database takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from perdure.model.states import TERMINAL, Status

ENDS = tuple(status for status in Status if status in TERMINAL)
"""The states a job may be pruned in."""


@dataclass(frozen=True, slots=True)
class PruneFilter:
    """Which finished jobs: those that ended more than `older_than` seconds ago, in one of `statuses` (only terminal ones count),
    of one of these kinds and queues; empty means any. `heavy`: only those whose payload and result are still there."""

    older_than: float
    statuses: tuple[Status, ...] = ENDS
    kinds: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    heavy: bool = False


@dataclass(frozen=True, slots=True)
class Prunable:
    """A job that matches, and the number of its events, which decides how much its deletion costs."""

    id: UUID
    events: int


@dataclass(frozen=True, slots=True)
class PrunePage:
    """Jobs that match, oldest id first. The next page begins after `next_after`; None = this is the last page."""

    jobs: tuple[Prunable, ...]
    next_after: UUID | None


@dataclass(frozen=True, slots=True)
class IndexSize:
    """One index, in bytes."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class TableSize:
    """One table. None: it could be found out only by reading the table.

    rows: an estimate; exact if `exact`, a lower bound if `at_least`. dead_rows: deleted and not yet vacuumed (PostgreSQL).
    bytes: without its indexes.
    """

    name: str
    rows: int | None
    exact: bool = False
    at_least: bool = False
    dead_rows: int | None = None
    bytes: int | None = None
    indexes: tuple[IndexSize, ...] = ()

    @property
    def index_bytes(self) -> int | None:
        """Bytes of all its indexes; None if they are not known."""
        return None if self.bytes is None else sum(i.bytes for i in self.indexes)


@dataclass(frozen=True, slots=True)
class StoreSizes:
    """How much space the database takes, in bytes. SQLite: free_bytes is unused space in the file, wal_bytes is its WAL file."""

    tables: tuple[TableSize, ...]
    total_bytes: int
    free_bytes: int | None = None
    wal_bytes: int | None = None


def by_size(tables: Iterable[TableSize]) -> tuple[TableSize, ...]:
    """The largest first; if bytes are not known, the one with the most rows."""
    return tuple(sorted(tables, key=lambda t: (-(t.bytes or 0) - (t.index_bytes or 0), -(t.rows or 0), t.name)))
