"""The long-term memory of one tenant as rows."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
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
from perdure.store.sqlite.engine.batch import NOTHING
from perdure.store.sqlite.engine.codec import CODEC, micros, stored
from perdure.store.sqlite.engine.engine import Engine
from perdure.store.sqlite.engine.statements import SQL


class SqliteMemories:
    """See `protocol.MemoryStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._engine = engine
        self._tenant_id = tenant_id

    async def change_memories(
        self, *, new: Sequence[NewMemory] = (), leave: Sequence[MemoryLeave] = (), enter: Sequence[MemoryIndex] = ()
    ) -> None:
        """See `protocol.MemoryStore.change_memories`."""

        def change(conn: sqlite3.Connection, now: int) -> None:
            for one in new:
                self._write(conn, now, one)
            for leaving in leave:
                self._leave(conn, now, leaving)
            for entering in enter:
                self._enter(conn, entering)

        await self._engine.write(change, NOTHING)

    def _write(self, conn: sqlite3.Connection, now: int, new: NewMemory) -> None:
        for statement, row in write_memory(self._tenant_id, new):
            values = {name: stored(value) for name, value in row.items()}
            conn.execute(SQL[statement], {**values, "job_id": stored(new.job_id), "now": now})

    def _leave(self, conn: sqlite3.Connection, now: int, leave: MemoryLeave) -> None:
        row = self._found(conn, leave.id)
        if row["archived_at"] is not None:
            if leave.replaces and not replaced(row, leave, CODEC):
                conn.execute(SQL["name_newer_memory"], {"no": row["no"], "superseded_by": stored(leave.superseded_by)})
            return
        terms = with_labels(leave.terms, row, CODEC) if row["tokeniser"] == leave.tokeniser else None
        conn.execute(SQL["drop_memory_terms"], {"scope_no": row["scope_no"], "no": row["no"], "terms": terms})
        conn.execute(SQL["drop_memory_vector"], {"no": row["no"]})
        conn.execute(
            SQL["leave_memory"],
            {
                "no": row["no"],
                "now": now,
                "superseded_by": stored(leave.superseded_by),
                "archived_at": micros(leave.archived_at),
                "changed": _count(conn, row["scope_no"], -1, -row["tokens"]),
            },
        )

    def _enter(self, conn: sqlite3.Connection, enter: MemoryIndex) -> None:
        row = self._found(conn, enter.id)
        archived = row["archived_at"] is not None
        if archived and not enter.restore:
            return
        if not archived and row["tokeniser"] not in ("", enter.tokeniser):
            conn.execute(SQL["drop_memory_terms"], {"scope_no": row["scope_no"], "no": row["no"], "terms": None})
        added = enter.tokens if archived else enter.tokens - row["tokens"]
        changed = _count(conn, row["scope_no"], 1 if archived else 0, added)
        values = {"no": row["no"], "tokens": enter.tokens, "tokeniser": enter.tokeniser, "changed": changed}
        conn.execute(SQL["enter_memory"], values)
        place = {"tenant_id": self._tenant_id, "id": str(enter.id)}
        conn.execute(
            SQL["memory_terms"], {**place, "terms": with_labels(enter.terms, row, CODEC), "length": enter.tokens}
        )
        conn.execute(SQL["drop_memory_vector"], {"no": row["no"]})
        if enter.vector is not None:
            vectors = {"embedder": enter.embedder, "vector": enter.vector, "chunks": enter.chunks}
            conn.execute(SQL["memory_vector"], {**place, **vectors})

    def _found(self, conn: sqlite3.Connection, id: UUID) -> Any:
        row = conn.execute(SQL["memory_for_change"], {"tenant_id": self._tenant_id, "id": str(id)}).fetchone()
        if row is None:
            raise memory_not_found(id)
        return row

    async def get_memory(self, id: UUID) -> MemoryEntry:
        """See `protocol.MemoryStore.get_memory`."""
        row = await self._engine.row("get_memory", tenant_id=self._tenant_id, id=str(id))
        if row is None:
            raise memory_not_found(id)
        return memory_of(row, CODEC)

    async def find_memory(self, suffix: str) -> UUID:
        """See `protocol.MemoryStore.find_memory`."""
        rows = await self._engine.rows("find_memories", tenant_id=self._tenant_id, suffix=suffix)
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
        rows = await self._engine.rows(
            "list_memories",
            tenant_id=self._tenant_id,
            scopes=None if scopes is None else json.dumps(list(scopes)),
            live=live,
            limit=limit,
            before=before,
            job_id=stored(job_id),
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
        rows = await self._engine.rows(
            "memories_after",
            tenant_id=self._tenant_id,
            after=after,
            scopes=None if scopes is None else json.dumps(list(scopes)),
            limit=limit,
            tokeniser=tokeniser,
            embedder=embedder,
            live=live,
        )
        return [(row["no"], memory_of(row, CODEC)) for row in rows]

    async def known_memories(self, ids: Sequence[UUID]) -> set[UUID]:
        """See `protocol.MemoryStore.known_memories`."""
        rows = await self._engine.rows(
            "known_memories", tenant_id=self._tenant_id, ids=json.dumps([str(id) for id in ids])
        )
        return {CODEC.uuid(row["id"]) for row in rows}

    async def superseded_memories(self, ids: Sequence[UUID]) -> list[MemoryEntry]:
        """See `protocol.MemoryStore.superseded_memories`."""
        wanted = json.dumps([str(id) for id in ids])
        rows = await self._engine.rows("superseded_memories", tenant_id=self._tenant_id, ids=wanted)
        return [memory_of(row, CODEC) for row in rows]

    async def pin_memory(self, id: UUID, *, pinned: bool) -> MemoryEntry:
        """See `protocol.MemoryStore.pin_memory`."""

        def pin(conn: sqlite3.Connection, now: int) -> MemoryEntry:
            place = {"tenant_id": self._tenant_id, "id": str(id)}
            if conn.execute(SQL["pin_memory"], {**place, "pinned": pinned, "now": now}).fetchone() is None:
                raise memory_not_found(id)
            return memory_of(conn.execute(SQL["get_memory"], place).fetchone(), CODEC)

        return await self._engine.write(pin, NOTHING)

    async def memory_scopes(self, scopes: Sequence[str] | None) -> list[ScopeHead]:
        """See `protocol.MemoryStore.memory_scopes`."""
        wanted = None if scopes is None else json.dumps(list(scopes))
        return [
            head_of(row) for row in await self._engine.rows("memory_scopes", tenant_id=self._tenant_id, scopes=wanted)
        ]

    async def memory_frequencies(
        self, scope_nos: Sequence[int], terms: Sequence[str], *, most: int
    ) -> dict[str, dict[int, int]]:
        """See `protocol.MemoryStore.memory_frequencies`."""
        values = {"scope_nos": json.dumps(list(scope_nos)), "terms": json.dumps(list(terms)), "most": most}
        return frequencies_of(await self._engine.rows("memory_frequencies", **values))

    async def memory_sample(self, scope_no: int, terms: Sequence[str], *, newest: int) -> dict[str, int]:
        """See `protocol.MemoryStore.memory_sample`."""
        wanted = json.dumps(list(terms))
        rows = await self._engine.rows("memory_sample", scope_no=scope_no, terms=wanted, newest=newest)
        return {row["term"]: row["entries"] for row in rows}

    async def memory_expansions(
        self, scope_nos: Sequence[int], words: Sequence[str]
    ) -> dict[str, list[tuple[str, int]]]:
        """See `protocol.MemoryStore.memory_expansions`."""
        if not words:
            return {}
        values = {"scope_nos": json.dumps(list(scope_nos)), "words": json.dumps(list(words)), **EXPANDING}
        return expansions_of(await self._engine.rows("memory_expansions", **values))

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
        values: dict[str, Any] = {"average": float(average), "limit": limit, "k1": K1, "b": B}
        if among is not None:
            found = partial(_rows, "rank_memory_text_among", {**values, "nos": json.dumps(list(among))})
        elif only == ANY:
            found = partial(_newest_rows, "rank_memory_text", values)
        else:
            found = partial(_newest_rows, "rank_memory_text_filtered", {**values, **_filter(only)})
        rows = await self._engine.read(partial(found, postings))
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
        statement = "recent_memories" if label is None else "matching_memories"
        values = {"newest": newest, **({} if label is None else {"label": label}), **_filter(only)}
        found: list[int] = []
        for no in scope_nos:
            found += [row["no"] for row in await self._engine.rows(statement, scope_no=no, **values)]
        return sorted(found, reverse=True)

    async def passing_memories(self, nos: Sequence[int], only: MemoryFilter) -> set[int]:
        """See `protocol.MemoryStore.passing_memories`."""
        wanted = json.dumps(list(nos))
        return {row["no"] for row in await self._engine.rows("passing_memories", nos=wanted, **_filter(only))}

    async def _nearest(
        self,
        scopes: Sequence[ScopeHead],
        embedder: str,
        vector: Sequence[float],
        limit: int,
        allowed: set[int] | None,
    ) -> list[Ranked]:
        return await self._engine.vectors.nearest(scopes, embedder, vector, limit, allowed, self._changed)

    async def index_vectors(self) -> bool:
        """See `protocol.MemoryStore.index_vectors`."""
        return False

    async def _changed(self, scope_no: int, embedder: str, after: Place, limit: int) -> tuple[list[Change], Place]:
        values = {"scope_no": scope_no, "embedder": embedder, **after._asdict(), "limit": limit}
        return changes_of(await self._engine.rows("changed_memory_vectors", **values), after)

    async def memory_standing(self, nos: Sequence[int]) -> dict[int, tuple[datetime, bool]]:
        """See `protocol.MemoryStore.memory_standing`."""
        rows = await self._engine.rows("memory_standing", tenant_id=self._tenant_id, nos=json.dumps(list(nos)))
        return {row["no"]: (CODEC.time(row["created_at"]), bool(row["pinned"])) for row in rows}

    async def memories_by_no(self, nos: Sequence[int]) -> dict[int, MemoryEntry]:
        """See `protocol.MemoryStore.memories_by_no`."""
        rows = await self._engine.rows("memories_by_no", tenant_id=self._tenant_id, nos=json.dumps(list(nos)))
        return {row["no"]: memory_of(row, CODEC) for row in rows}


def _count(conn: sqlite3.Connection, scope_no: int, entries: int, tokens: int) -> int:
    """The version of the scope after one more change."""
    values = {"scope_no": scope_no, "entries": entries, "tokens": tokens}
    return int(conn.execute(SQL["count_memory"], values).fetchone()["version"])


def _rows(
    statement: str, values: Mapping[str, Any], postings: Sequence[Posting], conn: sqlite3.Connection
) -> list[Any]:
    return conn.execute(SQL[statement], {**values, "postings": json.dumps(postings)}).fetchall()


def _newest_rows(
    statement: str, values: Mapping[str, Any], postings: Sequence[Posting], conn: sqlite3.Connection
) -> list[Any]:
    read = []
    for posting in postings:
        row = None if posting.newest is None else conn.execute(SQL["last_memory_unread"], posting._asdict()).fetchone()
        read.append((*posting[:3], 0 if row is None else row["no"]))
    return conn.execute(SQL[statement], {**values, "postings": json.dumps(read)}).fetchall()


def _filter(only: MemoryFilter) -> dict[str, Any]:
    return {"tags": json.dumps(only.tags), "since": micros(only.since), "kind": only.kind}
