"""Searches of long-term memory that are narrowed by tags, kind or time: which entries count, as far as that is few."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from perdure.memory.postings import FEW
from perdure.model.memory import ANY, MemoryFilter, ScopeHead, labels_of
from perdure.store.protocol import Store


class Narrowed(NamedTuple):
    """only: the filter. nos: the newest entries that pass it. whole: these are all. label: the rarest that all of them have."""

    only: MemoryFilter
    nos: Sequence[int] = ()
    whole: bool = False
    label: str | None = None


async def narrowed(store: Store, heads: Sequence[ScopeHead], only: MemoryFilter) -> Narrowed:
    """What a filter leaves of these scopes."""
    if only == ANY:
        return Narrowed(only)
    scope_nos = [head.no for head in heads]
    labels = labels_of(only.tags, only.kind)
    label, most = None, FEW + 1
    if labels:
        having = await store.memories.memory_frequencies(scope_nos, labels, most=FEW + 1)
        if len(having) < len(labels):
            return Narrowed(only, whole=True)
        sizes = {one: sum(having[one].values()) for one in labels}
        label = min(labels, key=lambda one: (sizes[one], one))
        most = sizes[label]
    nos = await store.memories.matching_memories(scope_nos, only, label=label, newest=FEW + 1)
    whole = most <= FEW if label is not None else len(nos) <= FEW
    return Narrowed(only, nos, whole, label)
