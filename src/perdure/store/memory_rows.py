"""Long-term memory: rows into records; both dialects alike."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from uuid import UUID

from perdure.model.memory import MemoryEntry, MemoryLeave, ScopeHead, labels_of
from perdure.store.errors import entry_superseded
from perdure.store.memory_vectors import Change, Place
from perdure.store.rows import Codec, Row

K1 = 1.2
B = 0.75
"""Of BM25."""
EXPANDING = {"looked_at": 32, "counted": 200}
"""So many longer words that begin like a word of a query are looked at, in the order of their characters, and so many entries
of each are counted."""
MOST_EXPANSIONS = 8
"""Longer words that a word of a query stands for: those that most entries have."""


def memory_of(row: Row, codec: Codec) -> MemoryEntry:
    """A row of `memory_entries` with its scope."""

    def id(name: str) -> UUID | None:
        return None if row[name] is None else codec.uuid(row[name])

    return MemoryEntry(
        id=codec.uuid(row["id"]),
        scope=row["scope"],
        text=row["text"],
        tags=codec.texts(row["tags"]),
        source=row["source"],
        kind=row["kind"],
        job_id=id("job_id"),
        created_by=row["created_by"],
        created_at=codec.time(row["created_at"]),
        pinned_at=None if row["pinned_at"] is None else codec.time(row["pinned_at"]),
        archived_at=None if row["archived_at"] is None else codec.time(row["archived_at"]),
        superseded_by=id("superseded_by"),
    )


def replaced(row: Row, leave: MemoryLeave, codec: Codec) -> bool:
    """Whether an archived entry says already that it was replaced by this one. Raises EntrySuperseded if it names another."""
    if row["superseded_by"] is None:
        return False
    by = codec.uuid(row["superseded_by"])
    if by != leave.superseded_by:
        raise entry_superseded(leave.id, by)
    return True


def head_of(row: Row) -> ScopeHead:
    """A row of `memory_scopes`."""
    return ScopeHead(row["no"], row["scope"], row["version"], row["entries"], row["tokens"])


def frequencies_of(rows: Iterable[Row]) -> dict[str, dict[int, int]]:
    """The rows of `memory_frequencies`."""
    found: dict[str, dict[int, int]] = {}
    for row in rows:
        if row["entries"]:
            found.setdefault(row["term"], {})[row["scope_no"]] = row["entries"]
    return found


def expansions_of(rows: Iterable[Row]) -> dict[str, list[tuple[str, int]]]:
    """The rows of `memory_expansions`."""
    found: dict[str, list[tuple[str, int]]] = {}
    for row in rows:
        found.setdefault(row["word"], []).append((row["term"], row["entries"]))
    return {word: sorted(terms, key=lambda t: (-t[1], t[0]))[:MOST_EXPANSIONS] for word, terms in found.items()}


def changes_of(rows: Sequence[Row], after: Place) -> tuple[list[Change], Place]:
    """The rows of `changed_memory_vectors`, and the place of the last one."""
    changes = [Change(row["no"], row["chunk"], row["vector"]) for row in rows]
    return changes, Place(rows[-1]["changed"], rows[-1]["no"], rows[-1]["chunk"]) if rows else after


def with_labels(terms: str, row: Row, codec: Codec) -> str:
    """The terms of an entry, as a JSON object or array, with what its searches are narrowed by."""
    labels = labels_of(codec.texts(row["tags"]), row["kind"])
    found = json.loads(terms)
    return json.dumps({**found, **dict.fromkeys(labels, 0)} if isinstance(found, dict) else [*found, *labels])
