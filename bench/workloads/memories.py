"""Searches of long-term memory, and writes to it, among many entries of one scope."""

import asyncio
import time
from itertools import islice

from bench.checks import Incorrect
from bench.memory_texts import Texts
from bench.targets import Target
from bench.workloads.common import Figures, Sizes, percentile
from perdure import Client
from perdure.memory.tokens import terms_of
from perdure.runtime.memory_checks import new_memory
from perdure.store.open import open_store
from perdure.store.protocol import Store

ENTRIES = 50_000
SCOPE = "user:bench"
PORTION = 250
"""Entries of one transaction."""


async def long_term_memory(target: Target, sizes: Sizes) -> Figures:
    """Hybrid searches, then writes, one after the other. `first` is the first search of a process, which has kept nothing yet,
    and `pause` how long the event loop did nothing else in it."""
    async with target.fresh() as url:
        await fill(target, url, round(ENTRIES * sizes.part))
        found, wrote = await searched(url, sizes.samples), await written(url, sizes.samples)
    return {f"memory_search.{name}": value for name, value in found.items()} | {
        f"memory_write.{name}": value for name, value in wrote.items()
    }


async def fill(target: Target, url: str, number: int) -> None:
    """So many entries in one scope."""
    store = await open_store(url)
    try:
        texts = Texts(1).texts()
        for first in range(0, number, PORTION):
            some = islice(texts, min(PORTION, number - first))
            await store.memories.change_memories(
                new=[new_memory(text, scope=SCOPE, created_by="bench") for text in some]
            )
    finally:
        await store.close()
    await target.settle(url)


async def searched(url: str, samples: int) -> dict[str, float]:
    """Milliseconds of searches in a process of its own."""
    store = await open_store(url)
    try:
        client, questions = Client(store), Texts(2).questions()
        first, pause = await _first(client, next(questions))
        times = []
        for question in islice(questions, samples):
            t = time.perf_counter()
            found = await client.memory.search(question, scope=SCOPE)
            times.append((time.perf_counter() - t) * 1000)
            if not found or not any(term in terms_of(found[0].entry.text) for term in terms_of(question)):
                raise Incorrect(f"{question!r} found {found[:1]}")
    finally:
        await store.close()
    return {"p50": percentile(times, 0.5), "p95": percentile(times, 0.95), "first": first, "pause": pause}


async def written(url: str, samples: int) -> dict[str, float]:
    """Milliseconds of writes, one transaction each."""
    store = await open_store(url)
    try:
        client, before, times = Client(store), await _entries(store), []
        for text in islice(Texts(3).texts(), samples):
            t = time.perf_counter()
            await client.memory.write(text, scope=SCOPE)
            times.append((time.perf_counter() - t) * 1000)
        if await _entries(store) != before + samples:
            raise Incorrect(f"{await _entries(store)} entries after {samples} writes to {before}")
    finally:
        await store.close()
    return {"p50": percentile(times, 0.5), "p95": percentile(times, 0.95)}


async def _first(client: Client, question: str) -> tuple[float, float]:
    """Milliseconds of the first search, and of the longest time in it in which nothing else ran."""
    began = last = time.perf_counter()
    pause = 0.0
    search = asyncio.ensure_future(client.memory.search(question, scope=SCOPE))
    while not search.done():
        await asyncio.sleep(0.001)
        now = time.perf_counter()
        pause, last = max(pause, now - last), now
    await search
    return (last - began) * 1000, pause * 1000


async def _entries(store: Store) -> int:
    heads = await store.memories.memory_scopes([SCOPE])
    return sum(head.entries for head in heads)
