"""`client.memory`, blocking."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from perdure.model.jobs import Page
from perdure.model.memory import MemoryEntry, MemoryHit, MemoryImport
from perdure.runtime.background import BackgroundLoop
from perdure.runtime.client.base import JobId
from perdure.runtime.client.memories import Memories as AsyncMemories
from perdure.runtime.client.memories import MemoryId


class Memories:
    """See `perdure.Client.memory`."""

    def __init__(self, memories: AsyncMemories, background: BackgroundLoop) -> None:
        self._memories = memories
        self._background = background

    def write(
        self,
        text: str,
        *,
        tags: Sequence[str] = (),
        source: str | None = None,
        kind: str | None = None,
        scope: str | None = None,
    ) -> MemoryEntry:
        """See `Memories.write`."""
        return self._background.run(self._memories.write(text, tags=tags, source=source, kind=kind, scope=scope))

    def search(
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
        """See `Memories.search`."""
        return self._background.run(
            self._memories.search(query, k, mode=mode, scope=scope, tags=tags, since=since, kind=kind)
        )

    def get(self, id: MemoryId) -> MemoryEntry:
        """See `Memories.get`."""
        return self._background.run(self._memories.get(id))

    def list(
        self,
        *,
        scope: str | Sequence[str] | None = None,
        live: bool | None = True,
        job: JobId | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[MemoryEntry]:
        """See `Memories.list`."""
        return self._background.run(self._memories.list(scope=scope, live=live, job=job, limit=limit, cursor=cursor))

    def supersede(
        self, id: MemoryId, text: str, *, tags: Sequence[str] | None = None, source: str | None = None
    ) -> MemoryEntry:
        """See `Memories.supersede`."""
        return self._background.run(self._memories.supersede(id, text, tags=tags, source=source))

    def archive(self, id: MemoryId) -> MemoryEntry:
        """See `Memories.archive`."""
        return self._background.run(self._memories.archive(id))

    def restore(self, id: MemoryId) -> MemoryEntry:
        """See `Memories.restore`."""
        return self._background.run(self._memories.restore(id))

    def pin(self, id: MemoryId, *, pinned: bool = True) -> MemoryEntry:
        """See `Memories.pin`."""
        return self._background.run(self._memories.pin(id, pinned=pinned))

    def undo(self, job: JobId) -> builtins.list[MemoryEntry]:
        """See `Memories.undo`."""
        return self._background.run(self._memories.undo(job))

    def export(self, *, scope: str | Sequence[str] | None = None) -> Iterator[str]:
        """See `Memories.export`."""
        return self._background.iterate(self._memories.export(scope=scope))

    def import_lines(self, lines: Iterable[str]) -> MemoryImport:
        """See `Memories.import_lines`."""
        return self._background.run(self._memories.import_lines(lines))

    def reindex(self, *, scope: str | Sequence[str] | None = None, every: bool = False) -> int:
        """See `Memories.reindex`."""
        return self._background.run(self._memories.reindex(scope=scope, every=every))
