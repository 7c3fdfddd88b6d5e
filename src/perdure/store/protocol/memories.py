"""Long-term memory. Part of `protocol.Store`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from perdure.model.memory import (
    ANY,
    MemoryEntry,
    MemoryFilter,
    MemoryIndex,
    MemoryLeave,
    NewMemory,
    Posting,
    Ranked,
    ScopeHead,
)


class MemoryStore(Protocol):
    """The long-term memory of one tenant. A job writes an entry by the effect `write_memory`."""

    async def change_memories(
        self, *, new: Sequence[NewMemory] = (), leave: Sequence[MemoryLeave] = (), enter: Sequence[MemoryIndex] = ()
    ) -> None:
        """Write entries with their terms and vectors, let others no longer be found, and index others again; in one transaction.

        new: one whose id is there is not written. leave: one that is not found already stays as it is. enter: it is found
        (again), by these terms and this vector; without `restore` an archived one stays archived. Raises NotFound, and changes
        nothing, for an id of `leave` or `enter` that is not there; EntrySuperseded likewise, where one of `leave` with
        `replaces` was replaced by another one.
        """
        ...

    async def get_memory(self, id: UUID) -> MemoryEntry:
        """One entry. Raises NotFound."""
        ...

    async def find_memory(self, suffix: str) -> UUID:
        """The id that ends in these hex digits. Raises NotFound, AmbiguousId."""
        ...

    async def list_memories(
        self,
        *,
        scopes: Sequence[str] | None,
        live: bool | None,
        limit: int,
        before: int | None = None,
        job_id: UUID | None = None,
    ) -> list[tuple[int, MemoryEntry]]:
        """Entries with their numbers, newest first, below a number. scopes: None for all. live: only those that searches find, or
        only the others. job_id: only those that this job wrote."""
        ...

    async def memories_after(
        self,
        after: int,
        *,
        scopes: Sequence[str] | None,
        limit: int,
        without: tuple[str, str | None] | None = None,
        live: bool | None = None,
    ) -> list[tuple[int, MemoryEntry]]:
        """Entries with their numbers, oldest first, above a number. without: only those without terms of this version, or without
        a vector of this embedder (None: of any). The rest as in `list_memories`."""
        ...

    async def known_memories(self, ids: Sequence[UUID]) -> set[UUID]:
        """Those of these ids that are there."""
        ...

    async def superseded_memories(self, ids: Sequence[UUID]) -> list[MemoryEntry]:
        """The entries that were superseded by these, in the order in which they were written."""
        ...

    async def pin_memory(self, id: UUID, *, pinned: bool) -> MemoryEntry:
        """Let an entry count more than others, or not. Raises NotFound."""
        ...

    async def memory_scopes(self, scopes: Sequence[str] | None) -> list[ScopeHead]:
        """Those of these scopes that have entries, in the order of their names; None: all."""
        ...

    async def memory_frequencies(
        self, scope_nos: Sequence[int], terms: Sequence[str], *, most: int
    ) -> dict[str, dict[int, int]]:
        """How many entries that are found have each term, by term and scope; what none has is left out. Of each no more than
        `most` are counted."""
        ...

    async def memory_sample(self, scope_no: int, terms: Sequence[str], *, newest: int) -> dict[str, int]:
        """How many of the newest entries of a scope that are found have each term; terms that none has are left out."""
        ...

    async def memory_expansions(
        self, scope_nos: Sequence[int], words: Sequence[str]
    ) -> dict[str, list[tuple[str, int]]]:
        """Some longer terms that begin with each of these words, and how many entries have each (counted to a limit), the most
        frequent first."""
        ...

    async def rank_memory_text(
        self,
        postings: Sequence[Posting],
        *,
        average: float,
        limit: int,
        only: MemoryFilter = ANY,
        among: Sequence[int] | None = None,
    ) -> list[Ranked]:
        """The entries with the highest BM25, by weighted terms; of equals the newer ones. average: the length of an entry.
        among: the
        numbers of the entries that are ranked, by all of their terms; None: all. With `among` all entries of a posting count. The
        score, rounded to six digits, and the order are the same in every store."""
        ...

    async def rank_memory_vectors(
        self,
        scopes: Sequence[ScopeHead],
        embedder: str,
        vector: Sequence[float],
        *,
        limit: int,
        only: MemoryFilter = ANY,
        among: Sequence[int] | None = None,
        label: str | None = None,
    ) -> list[Ranked]:
        """The entries whose vectors of this embedder are nearest (cosine, above 0), as `rank_memory_text`. The vectors of a scope
        are kept in the process and brought up to date by its version. Raises InvalidInput if a stored vector has another
        number of dimensions. among: the numbers of the entries that count. label: one that all have which pass `only`."""
        ...

    async def matching_memories(
        self, scope_nos: Sequence[int], only: MemoryFilter, *, label: str | None, newest: int
    ) -> list[int]:
        """The numbers of entries that are found and pass `only`, newest first. Of each scope, so many of the newest that have the
        label are looked at; without a label, those that were written last since `only.since`."""
        ...

    async def passing_memories(self, nos: Sequence[int], only: MemoryFilter) -> set[int]:
        """Those of these entries that are found and pass `only`."""
        ...

    async def index_vectors(self) -> bool:
        """Let the database compare vectors from now on, if it has pgvector or may have it, with the results of
        `rank_memory_vectors` without it. Return whether it does."""
        ...

    async def memory_standing(self, nos: Sequence[int]) -> dict[int, tuple[datetime, bool]]:
        """When entries were written, and whether they are pinned, by their numbers."""
        ...

    async def memories_by_no(self, nos: Sequence[int]) -> dict[int, MemoryEntry]:
        """Entries by their numbers."""
        ...
