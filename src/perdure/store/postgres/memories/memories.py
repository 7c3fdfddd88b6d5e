"""The long-term memory of one tenant as rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from perdure.model.effects import write_memory
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
from perdure.store.errors import ambiguous_memory, memory_not_found
from perdure.store.memory_rows import (
    EXPANDING,
    K1,
    B,
    changes_of,
    expansions_of,
    frequencies_of,
    head_of,
    memory_of,
    replaced,
    with_labels,
)
from perdure.store.memory_vectors import ALL, LOOKED_AT, SCALE, Change, Place
from perdure.store.postgres.engine.codec import CODEC
from perdure.store.postgres.engine.database import Transaction
from perdure.store.postgres.engine.engine import Engine
from perdure.store.rows import Row


class PostgresMemories:
    """See `protocol.MemoryStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._database = engine.database
        self._vectors = engine.vectors
        self._pgvectors = engine.pgvectors
        self._tenant_id = tenant_id

    async def change_memories(
        self, *, new: Sequence[NewMemory] = (), leave: Sequence[MemoryLeave] = (), enter: Sequence[MemoryIndex] = ()
    ) -> None:
        """See `protocol.MemoryStore.change_memories`."""

        async def change(tx: Transaction) -> None:
            changed = [*(one.id for one in leave), *(one.id for one in enter)]
            if changed:
                await tx.rows("lock_memory_scopes", tenant_id=self._tenant_id, ids=changed)
            for one in new:
                for statement, row in write_memory(self._tenant_id, one):
                    await tx.rows(statement, job_id=[one.job_id], **{name: [value] for name, value in row.items()})
            for leaving in leave:
                await self._leave(tx, leaving)
            for entering in enter:
                await self._enter(tx, entering)

        await self._database.transact(change)

    async def _leave(self, tx: Transaction, leave: MemoryLeave) -> None:
        row = await self._found(tx, leave.id)
        if row["archived_at"] is not None:
            if leave.replaces and not replaced(row, leave, CODEC):
                await tx.rows("name_newer_memory", no=row["no"], superseded_by=leave.superseded_by)
            return
        terms = with_labels(leave.terms, row, CODEC) if row["tokeniser"] == leave.tokeniser else None
        await tx.rows("drop_memory_terms", scope_no=row["scope_no"], no=row["no"], terms=terms)
        await tx.rows("drop_memory_vector", no=row["no"])
        changed = await _count(tx, row["scope_no"], -1, -row["tokens"])
        await tx.rows(
            "leave_memory",
            no=row["no"],
            superseded_by=leave.superseded_by,
            changed=changed,
            archived_at=leave.archived_at,
        )

    async def _enter(self, tx: Transaction, enter: MemoryIndex) -> None:
        row = await self._found(tx, enter.id)
        archived = row["archived_at"] is not None
        if archived and not enter.restore:
            return
        if not archived and row["tokeniser"] not in ("", enter.tokeniser):
            await tx.rows("drop_memory_terms", scope_no=row["scope_no"], no=row["no"], terms=None)
        added = enter.tokens if archived else enter.tokens - row["tokens"]
        changed = await _count(tx, row["scope_no"], 1 if archived else 0, added)
        await tx.rows("enter_memory", no=row["no"], tokens=enter.tokens, tokeniser=enter.tokeniser, changed=changed)
        place = {"job_id": [None], "tenant_id": [self._tenant_id], "id": [enter.id]}
        await tx.rows("memory_terms", **place, terms=[with_labels(enter.terms, row, CODEC)], length=[enter.tokens])
        await tx.rows("drop_memory_vector", no=row["no"])
        if enter.vector is not None:
            vectors = {"embedder": [enter.embedder], "vector": [enter.vector], "chunks": [enter.chunks]}
            await tx.rows("memory_vector", **place, **vectors)

    async def _found(self, tx: Transaction, id: UUID) -> Row:
        row = await tx.row("memory_for_change", tenant_id=self._tenant_id, id=id)
        if row is None:
            raise memory_not_found(id)
        return row

    async def get_memory(self, id: UUID) -> MemoryEntry:
        """See `protocol.MemoryStore.get_memory`."""
        row = await self._database.row("get_memory", tenant_id=self._tenant_id, id=id)
        if row is None:
            raise memory_not_found(id)
        return memory_of(row, CODEC)

    async def find_memory(self, suffix: str) -> UUID:
        """See `protocol.MemoryStore.find_memory`."""
        rows = await self._database.rows("find_memories", tenant_id=self._tenant_id, suffix=suffix)
        if len(rows) == 1:
            return CODEC.uuid(rows[0]["id"])
        raise ambiguous_memory(suffix) if rows else memory_not_found(suffix)

    async def list_memories(
        self,
        *,
        scopes: Sequence[str] | None,
        live: bool | None,
        limit: int,
        before: int | None = None,
        job_id: UUID | None = None,
    ) -> list[tuple[int, MemoryEntry]]:
        """See `protocol.MemoryStore.list_memories`."""
        rows = await self._database.rows(
            "list_memories",
            tenant_id=self._tenant_id,
            scopes=None if scopes is None else list(scopes),
            live=live,
            limit=limit,
            before=before,
            job_id=job_id,
        )
        return [(row["no"], memory_of(row, CODEC)) for row in rows]

    async def memories_after(
        self,
        after: int,
        *,
        scopes: Sequence[str] | None,
        limit: int,
        without: tuple[str, str | None] | None = None,
        live: bool | None = None,
    ) -> list[tuple[int, MemoryEntry]]:
        """See `protocol.MemoryStore.memories_after`."""
        tokeniser, embedder = without or (None, None)
        rows = await self._database.rows(
            "memories_after",
            tenant_id=self._tenant_id,
            after=after,
            scopes=None if scopes is None else list(scopes),
            limit=limit,
            tokeniser=tokeniser,
            embedder=embedder,
            live=live,
        )
        return [(row["no"], memory_of(row, CODEC)) for row in rows]

    async def known_memories(self, ids: Sequence[UUID]) -> set[UUID]:
        """See `protocol.MemoryStore.known_memories`."""
        rows = await self._database.rows("known_memories", tenant_id=self._tenant_id, ids=list(ids))
        return {CODEC.uuid(row["id"]) for row in rows}

    async def superseded_memories(self, ids: Sequence[UUID]) -> list[MemoryEntry]:
        """See `protocol.MemoryStore.superseded_memories`."""
        rows = await self._database.rows("superseded_memories", tenant_id=self._tenant_id, ids=list(ids))
        return [memory_of(row, CODEC) for row in rows]

    async def pin_memory(self, id: UUID, *, pinned: bool) -> MemoryEntry:
        """See `protocol.MemoryStore.pin_memory`."""
        if await self._database.row("pin_memory", tenant_id=self._tenant_id, id=id, pinned=pinned) is None:
            raise memory_not_found(id)
        return await self.get_memory(id)

    async def memory_scopes(self, scopes: Sequence[str] | None) -> list[ScopeHead]:
        """See `protocol.MemoryStore.memory_scopes`."""
        wanted = None if scopes is None else list(scopes)
        return [
            head_of(row) for row in await self._database.rows("memory_scopes", tenant_id=self._tenant_id, scopes=wanted)
        ]

    async def memory_frequencies(
        self, scope_nos: Sequence[int], terms: Sequence[str], *, most: int
    ) -> dict[str, dict[int, int]]:
        """See `protocol.MemoryStore.memory_frequencies`."""
        values = {"scope_nos": list(scope_nos), "terms": list(terms), "most": most}
        return frequencies_of(await self._database.rows("memory_frequencies", **values))

    async def memory_sample(self, scope_no: int, terms: Sequence[str], *, newest: int) -> dict[str, int]:
        """See `protocol.MemoryStore.memory_sample`."""
        rows = await self._database.rows("memory_sample", scope_no=scope_no, terms=list(terms), newest=newest)
        return {row["term"]: row["entries"] for row in rows}

    async def memory_expansions(
        self, scope_nos: Sequence[int], words: Sequence[str]
    ) -> dict[str, list[tuple[str, int]]]:
        """See `protocol.MemoryStore.memory_expansions`."""
        if not words:
            return {}
        values = {"scope_nos": list(scope_nos), "words": list(words), **EXPANDING}
        return expansions_of(await self._database.rows("memory_expansions", **values))

    async def rank_memory_text(
        self,
        postings: Sequence[Posting],
        *,
        average: float,
        limit: int,
        only: MemoryFilter = ANY,
        among: Sequence[int] | None = None,
    ) -> list[Ranked]:
        """See `protocol.MemoryStore.rank_memory_text`."""
        values: dict[str, Any] = {
            "scope_nos": [p.scope_no for p in postings],
            "terms": [p.term for p in postings],
            "weights": [p.weight for p in postings],
            "average": float(average),
            "limit": limit,
            "k1": K1,
            "b": B,
        }
        if among is not None:
            rows = await self._database.rows("rank_memory_text_among", **values, nos=list(among))
        else:
            values["newest"] = [p.newest for p in postings]
            if only == ANY:
                rows = await self._database.rows("rank_memory_text", **values)
            else:
                rows = await self._database.rows("rank_memory_text_filtered", **values, **_filter(only))
        return [Ranked(row["no"], row["score"] / SCALE) for row in rows]

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
        """See `protocol.MemoryStore.rank_memory_vectors`."""
        if among is not None or only == ANY:
            return await self._nearest(scopes, embedder, vector, limit, None if among is None else set(among))
        for looked_at in LOOKED_AT:
            found = await self._nearest(scopes, embedder, vector, looked_at * limit, None)
            passing = await self.passing_memories([ranked.no for ranked in found], only)
            kept = [ranked for ranked in found if ranked.no in passing]
            if len(kept) >= limit or len(found) < looked_at * limit:
                return kept[:limit]
        nos = await self.matching_memories([s.no for s in scopes], only, label=label, newest=ALL)
        return await self._nearest(scopes, embedder, vector, limit, set(nos))

    async def matching_memories(
        self, scope_nos: Sequence[int], only: MemoryFilter, *, label: str | None, newest: int
    ) -> list[int]:
        """See `protocol.MemoryStore.matching_memories`."""
        values = {"scope_nos": list(scope_nos), "label": label, "newest": newest, **_filter(only)}
        return [row["no"] for row in await self._database.rows("matching_memories", **values)]

    async def passing_memories(self, nos: Sequence[int], only: MemoryFilter) -> set[int]:
        """See `protocol.MemoryStore.passing_memories`."""
        return {row["no"] for row in await self._database.rows("passing_memories", nos=list(nos), **_filter(only))}

    async def _nearest(
        self,
        scopes: Sequence[ScopeHead],
        embedder: str,
        vector: Sequence[float],
        limit: int,
        allowed: set[int] | None,
    ) -> list[Ranked]:
        if not self._vectors.worth_keeping(scopes, embedder, len(vector)) and await self._pgvectors.whole():
            found = await self._pgvectors.nearest(scopes, embedder, vector, limit, allowed)
            if found is not None:
                return found
        return await self._vectors.nearest(scopes, embedder, vector, limit, allowed, self._changed)

    async def index_vectors(self) -> bool:
        """See `protocol.MemoryStore.index_vectors`."""
        return await self._pgvectors.make()

    async def _changed(self, scope_no: int, embedder: str, after: Place, limit: int) -> tuple[list[Change], Place]:
        values = {"scope_no": scope_no, "embedder": embedder, **after._asdict(), "limit": limit}
        return changes_of(await self._database.rows("changed_memory_vectors", **values), after)

    async def memory_standing(self, nos: Sequence[int]) -> dict[int, tuple[datetime, bool]]:
        """See `protocol.MemoryStore.memory_standing`."""
        rows = await self._database.rows("memory_standing", tenant_id=self._tenant_id, nos=list(nos))
        return {row["no"]: (CODEC.time(row["created_at"]), bool(row["pinned"])) for row in rows}

    async def memories_by_no(self, nos: Sequence[int]) -> dict[int, MemoryEntry]:
        """See `protocol.MemoryStore.memories_by_no`."""
        rows = await self._database.rows("memories_by_no", tenant_id=self._tenant_id, nos=list(nos))
        return {row["no"]: memory_of(row, CODEC) for row in rows}


async def _count(tx: Transaction, scope_no: int, entries: int, tokens: int) -> int:
    """The version of the scope after one more change."""
    row = await tx.row("count_memory", scope_no=scope_no, entries=entries, tokens=tokens)
    assert row is not None
    version: int = row["version"]
    return version


def _filter(only: MemoryFilter) -> dict[str, Any]:
    return {"tags": list(only.tags), "since": only.since, "kind": only.kind}
