"""What is kept and what goes: which finished jobs a prune means, and how much room everything takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from perdure.model.states import TERMINAL, Status

ENDS = tuple(status for status in Status if status in TERMINAL)
"""The states a job may be pruned in."""


@dataclass(frozen=True, slots=True)
class PruneFilter:
    """Which finished jobs: those that ended more than `older_than` seconds ago, in one of `statuses` (what is no end is
    ignored), of one of these kinds and queues; empty means any. `heavy`: only those whose payload and result are still there."""

    older_than: float
    statuses: tuple[Status, ...] = ENDS
    kinds: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    heavy: bool = False


@dataclass(frozen=True, slots=True)
class Prunable:
    """A job that matches, and the number of its events: what its deletion costs."""

    id: UUID
    events: int


@dataclass(frozen=True, slots=True)
class PrunePage:
    """Jobs that match, oldest id first. `next_after` is where to go on looking, None = the end was reached."""

    jobs: tuple[Prunable, ...]
    next_after: UUID | None


@dataclass(frozen=True, slots=True)
class IndexSize:
    """One index, in bytes."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class TableSize:
    """One table. Nothing here is found out by reading the table: None = not to be had at that price.

    rows: an estimate, or exact where `exact`; where `at_least`, there are more. dead_rows: waiting for vacuum (PostgreSQL).
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
        """All its indexes together; None where they are not known."""
        return None if self.bytes is None else sum(i.bytes for i in self.indexes)


@dataclass(frozen=True, slots=True)
class StoreSizes:
    """How much room the database takes, in bytes. free_bytes: in the file, to be used again (SQLite); wal_bytes: beside it."""

    tables: tuple[TableSize, ...]
    total_bytes: int
    free_bytes: int | None = None
    wal_bytes: int | None = None


def by_size(tables: Iterable[TableSize]) -> tuple[TableSize, ...]:
    """The largest first; where bytes are not known, the one with the most rows."""
    return tuple(sorted(tables, key=lambda t: (-(t.bytes or 0) - (t.index_bytes or 0), -(t.rows or 0), t.name)))
