"""`client.memory`: long-term memory."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

from perdure.model.errors import InvalidInput
from perdure.model.jobs import Page
from perdure.model.memory import MemoryEntry, MemoryFilter, MemoryHit, parse_scope, parse_scopes
from perdure.runtime.client.base import JobId
from perdure.runtime.client.memory_transfer import MemoryTransfer, indexes_of
from perdure.runtime.embedders import with_vectors
from perdure.runtime.memory_checks import check_k, check_mode, check_query, check_tags, leave_of, new_memory
from perdure.runtime.memory_search import search
from perdure.runtime.validation import check_moment, check_text
from perdure.store.errors import id_suffix

MemoryId: TypeAlias = UUID | str
"""An entry's id: a UUID, its text, or its last 6 or more hex digits."""

MOST_UNDONE = 1000


class Memories(MemoryTransfer):
    """Long-term memory: what jobs and people wrote down, found again by words and by vectors. Nothing of it is ever deleted.

    Every entry has a scope: `user:<id>`, `agent:<id>`, `job:<id>`, `project:<name>`, or `tenant`.
    """

    async def write(
        self,
        text: str,
        *,
        tags: Sequence[str] = (),
        source: str | None = None,
        kind: str | None = None,
        scope: str | None = None,
    ) -> MemoryEntry:
        """Write an entry. It is stored with its search terms and its vector when this returns, and any process finds it.

        text: 1 to 20,000 characters. tags: searches can be narrowed by them. source: where it is from. kind: a word of yours,
        default `note`. scope: default `user:<tenant>`, which is also the default of jobs without a user of their own.
        Raises UnknownScope, TextTooLong, InvalidInput, NotJson, MixedDimensions.
        """
        store = await self._store()
        whose = f"user:{store.tenant_id}" if scope is None else parse_scope(scope)
        new = new_memory(text, scope=whose, created_by=self._scope.actor, tags=tags, source=source, kind=kind)
        [new] = await with_vectors(self._embedder, [new], [new.text])
        await store.memories.change_memories(new=[new])
        return await store.memories.get_memory(new.id)

    async def search(
        self,
        query: str,
        k: int = 5,
        *,
        mode: str = "hybrid",
        scope: str | Sequence[str] | None = None,
        tags: Sequence[str] = (),
        since: datetime | None = None,
        kind: str | None = None,
    ) -> builtins.list[MemoryHit]:
        """The k entries that fit a question best, the best first; each says why.

        query: words or a whole sentence, 1 to 4,000 characters. k: 1 to 100. mode: "hybrid", "text" (words alone) or "vector".
        scope: one or several; by default all of the tenant. tags: only entries that have all of these. since: only entries
        written then (timezone-aware) or later. Raises EmptyQuery, UnknownScope, TextTooLong, InvalidInput, NotJson; with
        mode="vector" EmbedderUnavailable.
        """
        only = MemoryFilter(check_tags(tags), check_moment(since, "since"), check_text(kind, "kind", 100))
        scopes = None if scope is None else parse_scopes(scope)
        return await search(
            await self._store(),
            self._embedder,
            scopes,
            check_query(query),
            k=check_k(k),
            mode=check_mode(mode),
            only=only,
        )

    async def get(self, id: MemoryId) -> MemoryEntry:
        """One entry, also one that searches do not find any more. Raises NotFound, AmbiguousId."""
        return await (await self._store()).memories.get_memory(await self._entry_id(id))

    async def list(
        self,
        *,
        scope: str | Sequence[str] | None = None,
        live: bool | None = True,
        job: JobId | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[MemoryEntry]:
        """Entries, newest first. live: those that searches find; False: the others; None: all. job: only those that it wrote.
        Raises InvalidInput, JobNotFound, AmbiguousId."""
        if not 1 <= limit <= 1000:
            raise InvalidInput(f"limit must be between 1 and 1000, got {limit}")
        found = await (await self._store()).memories.list_memories(
            scopes=None if scope is None else parse_scopes(scope),
            live=live,
            limit=limit + 1,
            before=_place(cursor),
            job_id=None if job is None else await self._id(job),
        )
        following = str(found[limit - 1][0]) if len(found) > limit else None
        return Page(tuple(entry for _, entry in found[:limit]), following)

    async def supersede(
        self, id: MemoryId, text: str, *, tags: Sequence[str] | None = None, source: str | None = None
    ) -> MemoryEntry:
        """Replace an entry by a new one of the same scope and kind: searches find the new one, and the old one says what replaced
        it. tags: by default those of the old one. Of two at once one is refused. Raises EntrySuperseded if another entry has
        replaced it already, which it names; NotFound, AmbiguousId, InvalidInput, NotJson."""
        store = await self._store()
        old = await store.memories.get_memory(await self._entry_id(id))
        new = new_memory(
            text,
            scope=old.scope,
            created_by=self._scope.actor,
            tags=old.tags if tags is None else tags,
            source=source,
            kind=old.kind,
        )
        [new] = await with_vectors(self._embedder, [new], [new.text])
        leave = leave_of(old.id, old.text, new.id)._replace(replaces=True)
        await store.memories.change_memories(new=[new], leave=[leave])
        return await store.memories.get_memory(new.id)

    async def archive(self, id: MemoryId) -> MemoryEntry:
        """Let searches find an entry no longer. It stays. Raises NotFound, AmbiguousId."""
        store = await self._store()
        entry = await store.memories.get_memory(await self._entry_id(id))
        await store.memories.change_memories(leave=[leave_of(entry.id, entry.text)])
        return await store.memories.get_memory(entry.id)

    async def restore(self, id: MemoryId) -> MemoryEntry:
        """Let searches find an entry again that was archived or superseded. Raises NotFound, AmbiguousId."""
        store = await self._store()
        entry = await store.memories.get_memory(await self._entry_id(id))
        if not entry.live:
            await store.memories.change_memories(enter=await indexes_of(self._embedder, [entry]))
        return await store.memories.get_memory(entry.id)

    async def pin(self, id: MemoryId, *, pinned: bool = True) -> MemoryEntry:
        """Let an entry count more than others that fit as well; pinned=False: no more. Raises NotFound, AmbiguousId."""
        return await (await self._store()).memories.pin_memory(await self._entry_id(id), pinned=pinned)

    async def undo(self, job: JobId) -> builtins.list[MemoryEntry]:
        """Archive all that a job wrote, and let searches find again what that had superseded; in one transaction. Return what was
        archived. Raises JobNotFound, AmbiguousId, InvalidInput (more than 1,000 entries)."""
        store, job_id = await self._store(), await self._id(job)
        found = await store.memories.list_memories(scopes=None, live=True, limit=MOST_UNDONE + 1, job_id=job_id)
        if not found:
            await store.jobs.get_job(job_id)  # raises if there is no such job
        if len(found) > MOST_UNDONE:
            raise InvalidInput(
                f"job {job_id} wrote more than {MOST_UNDONE:,} entries", hint="archive some of them first"
            )
        ids = [entry.id for _, entry in found]
        replaced = await store.memories.superseded_memories(ids)
        await store.memories.change_memories(
            leave=[leave_of(entry.id, entry.text) for _, entry in found],
            enter=await indexes_of(self._embedder, replaced),
        )
        return [await store.memories.get_memory(id) for id in ids]

    async def _entry_id(self, id: MemoryId) -> UUID:
        if isinstance(id, UUID):
            return id
        wanted = id_suffix(id)
        return wanted if isinstance(wanted, UUID) else await (await self._store()).memories.find_memory(wanted)


def _place(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not cursor.isascii() or not cursor.isdigit():
        raise InvalidInput(f"'{cursor:.60}' is no cursor of this list", hint="give next_cursor of the page before")
    return int(cursor)
