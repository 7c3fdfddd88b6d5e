"""Export, import and reindexing of long-term memory by a client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence

from perdure.memory.tokens import TOKENISER
from perdure.model.memory import MemoryEntry, MemoryImport, MemoryIndex, parse_scopes
from perdure.runtime.client.base import ClientPart
from perdure.runtime.embedders import Embedder, with_vectors
from perdure.runtime.memory_checks import index_of
from perdure.runtime.memory_file import Writer, read_export
from perdure.store.protocol import Store

PAGE = 200
"""Entries that are read or written together."""


class MemoryTransfer(ClientPart):
    """See `memories.Memories`."""

    @property
    def _embedder(self) -> Embedder:
        return self._scope.registry.choose_embedder()

    async def export(self, *, scope: str | Sequence[str] | None = None) -> AsyncIterator[str]:
        """All entries of these scopes (default: of the tenant), also archived ones, as lines of JSON without line ends, oldest
        first. Terms and vectors are left out: an import makes them again. Raises InvalidInput."""
        scopes = None if scope is None else parse_scopes(scope)
        store, writer, after = await self._store(), Writer(), 0
        yield writer.first()
        while page := await store.memories.memories_after(after, scopes=scopes, limit=PAGE):
            for _, entry in page:
                yield writer.entry(entry)
            after = page[-1][0]
        yield writer.last()

    async def import_lines(self, lines: Iterable[str]) -> MemoryImport:
        """Write the entries of an export that are not there, by their ids; those that are there stay as they are. All lines are
        checked before anything is written. Raises InvalidInput, which names the line, for a file that is damaged or cut off."""
        found = read_export(lines)
        store = await self._store()
        written = 0
        for start in range(0, len(found), PAGE):
            some = found[start : start + PAGE]
            known = await store.memories.known_memories([entry.new.id for entry in some])
            fresh = [entry for entry in some if entry.new.id not in known]
            new = [entry.new for entry in fresh]
            await store.memories.change_memories(
                new=await with_vectors(self._embedder, new, [one.text for one in new]),
                leave=[entry.leave for entry in fresh if entry.leave is not None],
            )
            written += len(fresh)
        return MemoryImport(read=len(found), written=written)

    async def reindex(self, *, scope: str | Sequence[str] | None = None, every: bool = False) -> int:
        """Make the search terms and the vectors again of entries whose terms are of another version or that have no vector of the
        embedder of the settings, or of every one. Where PostgreSQL has pgvector, it compares vectors from then on. Searches and
        writes go on meanwhile. Returns how many. Raises InvalidInput, EmbedderUnavailable, MixedDimensions; what was made until
        then stays."""
        scopes = None if scope is None else parse_scopes(scope)
        store, embedder = await self._store(), self._embedder
        only = None if every else (TOKENISER, embedder.id)
        await store.memories.index_vectors()
        return await index_again(store, embedder, scopes, only, wait=True)


async def index_again(
    store: Store,
    embedder: Embedder,
    scopes: Sequence[str] | None,
    without: tuple[str, str | None] | None,
    *,
    wait: bool,
) -> int:
    """Make the search terms and the vectors of entries again, a page in a transaction; return of how many. without: see
    `MemoryStore.memories_after`. wait: see `with_vectors`."""
    after = done = 0
    while page := await store.memories.memories_after(after, scopes=scopes, limit=PAGE, without=without, live=True):
        entries = [entry for _, entry in page]
        await store.memories.change_memories(enter=await indexes_of(embedder, entries, wait=wait, restore=False))
        after, done = page[-1][0], done + len(page)
    return done


async def indexes_of(
    embedder: Embedder, entries: Sequence[MemoryEntry], *, wait: bool = False, restore: bool = True
) -> list[MemoryIndex]:
    """What these entries are found by. wait: see `with_vectors`. restore: see `MemoryIndex`."""
    indexes = [index_of(entry.id, entry.text, restore=restore) for entry in entries]
    return await with_vectors(embedder, indexes, [entry.text for entry in entries], wait=wait)
