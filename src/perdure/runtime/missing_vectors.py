"""A chore: vectors of entries of long-term memory that were written while the embedding endpoint gave none."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from perdure.memory.tokens import TOKENISER
from perdure.model.errors import EmbedderUnavailable, MixedDimensions
from perdure.runtime.chores import Chore, ChoreContext, Portion, RunBy
from perdure.runtime.embedders import HASH, Embedder, with_vectors
from perdure.runtime.memory_checks import index_of
from perdure.runtime.registry import Registry
from perdure.store.protocol import Store

log = structlog.get_logger("perdure.memory")

INTERVAL = 5.0
"""Seconds."""
FROM_THE_START = 600.0
"""Seconds after which entries are looked at again that had all they need."""
PAGE = 64


class MissingVectors:
    """Makes them. It remembers up to which entry none is missing."""

    def __init__(self, embedder: Callable[[], Embedder]) -> None:
        self._embedder = embedder
        self._after = 0
        self._began = float("-inf")

    def chore(self) -> Chore:
        """What a registry adds."""
        return Chore("memory-vectors", self._start, RunBy.LEADER, lambda _: INTERVAL)

    def _start(self, context: ChoreContext) -> Portion:
        if time.monotonic() - self._began > FROM_THE_START:
            self._after, self._began = 0, time.monotonic()

        async def portion() -> bool:
            return await self.make_some(context.store)

        return portion

    async def make_some(self, store: Store) -> bool:
        """Make those of a page of entries; True: no more can be made now. Raises StoreError."""
        embedder = self._embedder()
        if embedder is HASH:
            return True
        page = await store.memories.memories_after(
            self._after, scopes=None, limit=PAGE, without=(TOKENISER, None), live=True
        )
        if not page:
            return True
        entries = [entry for _, entry in page]
        indexes = [index_of(entry.id, entry.text, restore=False) for entry in entries]
        try:
            made = await with_vectors(embedder, indexes, [entry.text for entry in entries], wait=True)
        except (EmbedderUnavailable, MixedDimensions) as error:
            log.warning("vectors of memory are still missing", reason=str(error))
            return True
        await store.memories.change_memories(enter=made)
        self._after = page[-1][0]
        return len(page) < PAGE


def make_missing_vectors(registry: Registry) -> None:
    """Let workers with these handlers do it, where there is an endpoint. Raises ConfigError."""
    if registry.choose_embedder() is not HASH:
        registry.add_chore(MissingVectors(registry.choose_embedder).chore())
