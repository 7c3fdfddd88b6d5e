"""Long-term memory: searching it and writing it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from perdure.model.errors import AmbiguousId, EntrySuperseded, InvalidInput, JobNotFound, NotFound, NotJson
from perdure.model.jobs import Page
from perdure.model.memory import MemoryEntry, MemoryHit, MemoryImport
from perdure.operations.registry import Role, operation

if TYPE_CHECKING:
    from perdure import Client


@operation("memory.search", role=Role.VIEWER, errors=(InvalidInput, NotJson))
async def search_memory(
    client: Client,
    query: str,
    k: int = 5,
    *,
    mode: str = "hybrid",
    scope: Sequence[str] = (),
    tags: Sequence[str] = (),
    since: datetime | None = None,
    kind: str | None = None,
) -> list[MemoryHit]:
    """The entries that fit a question best."""
    return await client.memory.search(query, k, mode=mode, scope=scope or None, tags=tags, since=since, kind=kind)


@operation("memory.write", role=Role.OPERATOR, errors=(InvalidInput, NotJson))
async def write_memory(
    client: Client,
    text: str,
    *,
    tags: Sequence[str] = (),
    source: str | None = None,
    kind: str | None = None,
    scope: str | None = None,
) -> MemoryEntry:
    """Write an entry."""
    return await client.memory.write(text, tags=tags, source=source, kind=kind, scope=scope)


@operation("memory.get", role=Role.VIEWER, errors=(NotFound, AmbiguousId))
async def get_memory(client: Client, id: str) -> MemoryEntry:
    """One entry."""
    return await client.memory.get(id)


@operation("memory.list", role=Role.VIEWER, errors=(InvalidInput,))
async def list_memory(
    client: Client,
    *,
    scope: Sequence[str] = (),
    live: bool | None = True,
    job: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[MemoryEntry]:
    """The entries, newest first."""
    return await client.memory.list(scope=scope or None, live=live, job=job, limit=limit, cursor=cursor)


@operation(
    "memory.supersede", role=Role.OPERATOR, errors=(NotFound, EntrySuperseded, AmbiguousId, InvalidInput, NotJson)
)
async def supersede_memory(
    client: Client, id: str, text: str, *, tags: Sequence[str] | None = None, source: str | None = None
) -> MemoryEntry:
    """Replace an entry by a new one."""
    return await client.memory.supersede(id, text, tags=tags, source=source)


@operation("memory.archive", role=Role.OPERATOR, errors=(NotFound, AmbiguousId))
async def archive_memory(client: Client, id: str) -> MemoryEntry:
    """Let searches find an entry no longer."""
    return await client.memory.archive(id)


@operation("memory.restore", role=Role.OPERATOR, errors=(NotFound, AmbiguousId))
async def restore_memory(client: Client, id: str) -> MemoryEntry:
    """Let searches find an entry again."""
    return await client.memory.restore(id)


@operation("memory.pin", role=Role.OPERATOR, errors=(NotFound, AmbiguousId))
async def pin_memory(client: Client, id: str, *, pinned: bool = True) -> MemoryEntry:
    """Let an entry count more than others."""
    return await client.memory.pin(id, pinned=pinned)


@operation("memory.undo", role=Role.OPERATOR, errors=(JobNotFound, AmbiguousId, InvalidInput))
async def undo_memory(client: Client, job: str) -> list[MemoryEntry]:
    """Archive all that a job wrote."""
    return await client.memory.undo(job)


@operation("memory.export", role=Role.VIEWER, errors=(InvalidInput,))
async def export_memory(client: Client, *, scope: Sequence[str] = ()) -> AsyncGenerator[str, None]:
    """All entries as lines of JSON, the oldest first, also archived ones."""
    async for line in client.memory.export(scope=scope or None):
        yield line


@operation("memory.import", role=Role.OPERATOR, errors=(InvalidInput,))
async def import_memory(client: Client, lines: list[str]) -> MemoryImport:
    """Write the entries of an export that are not there."""
    return await client.memory.import_lines(lines)


@operation("memory.reindex", role=Role.OPERATOR, errors=(InvalidInput,))
async def reindex_memory(client: Client, *, scope: Sequence[str] = (), every: bool = False) -> int:
    """Make search terms and vectors again, where they are missing or of another version, or everywhere."""
    return await client.memory.reindex(scope=scope or None, every=every)
