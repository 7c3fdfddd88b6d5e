"""Searches that are narrowed by tags, kind and time find what searches of all entries would, and read few of these."""

from __future__ import annotations

import asyncio
import random
from datetime import datetime

import pytest

from perdure import Client
from perdure.model.memory import MemoryHit
from perdure.runtime.memory_checks import new_memory
from perdure.store.protocol import Store

WORDS = "日志 问题 连接 配置 服务 部署 数据库 备份 pool connection deploy branch invoice log".split()  # noqa: SIM905  a list is longer
MODES = ("text", "vector", "hybrid")
Said = list[tuple[str, int | None, float | None, int | None, float | None]]


def said(hits: list[MemoryHit]) -> Said:
    """What was found, and how."""
    return [(h.entry.text, h.text_rank, h.text_score, h.vector_rank, h.vector_score) for h in hits]


async def filled(store: Store) -> datetime:
    """80 entries of two scopes; the second half is as old as the moment that is returned, or younger."""
    chance = random.Random(11)
    halves = []
    for first in (0, 40):
        halves.append(await store.now())
        await store.memories.change_memories(
            new=[
                new_memory(
                    f"{n} " + " ".join(chance.choices(WORDS, k=chance.randint(3, 20))),
                    scope=f"user:{n % 2}",
                    created_by="ann",
                    kind="fact" if n % 5 == 0 else None,
                    tags=[*(["third"] if n % 3 == 0 else []), *(["rare"] if n == 17 else [])],
                )
                for n in range(first, first + 40)
            ]
        )
        [(_, last), *_] = await store.memories.list_memories(scopes=None, live=True, limit=1)
        while await store.now() <= last.created_at:
            await asyncio.sleep(0.001)
    return halves[1]


async def test_few_and_many_entries_that_count_give_the_same(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    client, start = Client(store), await filled(store)
    filters = [
        {"tags": ["third"]},
        {"kind": "fact"},
        {"since": start},
        {"tags": ["third"], "kind": "fact", "since": start},
        {"tags": ["rare"]},
    ]
    queries = ["日志 pool", "deploy branch 备份", "zebra invoice"]

    async def answers() -> list[Said]:
        return [
            said(await client.memory.search(query, 30, mode=mode, scope=scope, **narrowed))  # type: ignore[arg-type]
            for query in queries
            for mode in MODES
            for scope in (None, "user:1")
            for narrowed in filters
        ]

    whole = await answers()
    assert any(len(found) > 20 for found in whole)
    monkeypatch.setattr("perdure.runtime.memory_search.RANKED", 3)
    assert await answers() == whole
    monkeypatch.setattr("perdure.runtime.memory_narrowing.FEW", 3)
    monkeypatch.setattr("perdure.store.memory_vectors.LOOKED_AT", (1, 2))
    assert await answers() == whole
    monkeypatch.setattr("perdure.runtime.memory_search.RECENT", 5)
    assert [found for found in await answers() if found], "what rare words find, and the newest"


async def test_what_left_and_came_back_counts_by_its_tags(store: Store) -> None:
    client = Client(store)
    entry = await client.memory.write("the pool has 50 connections", tags=["db", "#kind x"], kind="fact")

    async def found(**narrowed: object) -> int:
        return len(await client.memory.search("pool", **narrowed))  # type: ignore[arg-type]

    for _ in range(2):
        assert [await found(tags=["db"]), await found(kind="fact"), await found(tags=["#kind x", "db"])] == [1, 1, 1]
        assert [await found(tags=["x"]), await found(kind="x"), await found(kind="db"), await found(tags=["fact"])] == [
            0
        ] * 4
        await client.memory.archive(entry.id)
        assert [await found(tags=["db"]), await found(kind="fact")] == [0, 0]
        await client.memory.restore(entry.id)
    assert await client.memory.reindex(every=True) == 1
    assert await found(tags=["db"], kind="fact", since=entry.created_at) == 1
