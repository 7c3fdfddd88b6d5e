"""Where PostgreSQL has pgvector, it compares vectors itself, with the same results as a process does."""

from __future__ import annotations

import random

import asyncpg
import pytest

from perdure import Client
from perdure.runtime.memory_checks import new_memory
from perdure.store.memory_vectors import ASKED
from perdure.store.open import open_store
from perdure.store.protocol import Store
from tests.conformance.healthy_jobs import fsck

WORDS = "日志 问题 连接 配置 服务 限流 部署 数据库 备份 解决 项目 pool connection deploy branch invoice log".split()  # noqa: SIM905  a list is longer


async def available(url: str) -> bool:
    """Whether the server of a database has the extension."""
    connection = await asyncpg.connect(url)
    try:
        found: bool = await connection.fetchval(
            "select exists (select from pg_available_extensions where name = 'vector')"
        )
        return found
    finally:
        await connection.close()


async def answers(store: Store, queries: list[str]) -> list[list[tuple[str, int, float | None]]]:
    """What searches by vectors find, in order."""
    client = Client(store)
    return [
        [(hit.entry.text, hit.chunk.number, hit.vector_score) for hit in found]
        for query in queries
        for found in (
            await client.memory.search(query, 20, mode="vector"),
            await client.memory.search(query, 3, mode="vector", scope=["user:1", "user:2"]),
            await client.memory.search(query, 20, mode="vector", tags=["even"]),
        )
    ]


async def test_pgvector_finds_the_same_in_the_same_order(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what is written, superseded and archived after the copy was made, by a process that does not know of it."""
    if not await available(postgres_url):
        pytest.skip("this PostgreSQL has no pgvector")
    chance = random.Random(3)
    texts = [" ".join(chance.choices(WORDS, k=chance.randint(3, 30))) for _ in range(120)]
    texts += ["\n\n".join(" ".join(chance.choices(WORDS, k=120)) for _ in range(6)) for _ in range(5)]
    texts += texts[:20]  # equals
    queries = [" ".join(chance.choices(WORDS, k=3)) for _ in range(8)] + ["zebra"]
    old = await open_store(postgres_url)
    new = [
        new_memory(text, scope=f"user:{n % 3}", created_by="ann", tags=["even"] if n % 2 == 0 else [])
        for n, text in enumerate(texts)
    ]
    await old.memories.change_memories(new=new)
    assert all(await answers(old, queries[:3]))
    monkeypatch.setattr("perdure.store.memory_vectors.ASKED", 10_000)  # this process keeps no other vectors

    assert await Client(old).memory.reindex() == 0
    store = await open_store(postgres_url)
    compared: list[int] = []
    nearest = store.memories._pgvectors.nearest  # type: ignore[attr-defined]

    async def counted(*args: object) -> object:
        compared.append(1)
        return await nearest(*args)

    store.memories._pgvectors.nearest = counted  # type: ignore[attr-defined]
    expected = await answers(old, queries)
    assert await answers(store, queries) == expected
    assert len(compared) == len(expected), "the database has compared"

    here = Client(old)
    await here.memory.archive(new[5].id)
    await here.memory.supersede(new[6].id, "pool connection 日志")
    await here.memory.write("\n\n".join(texts[20:60]))
    assert await here.memory.reindex(every=True) == len(texts)
    expected = await answers(old, queries)
    assert await answers(store, queries) == expected
    assert await fsck(store) == []
    assert await store.memories.index_vectors(), "once more changes nothing"
    heads = await store.memories.memory_scopes(None)
    assert await nearest(heads, "hash-v1", [1.0, 0.5], 5, None) is None, "vectors of other dimensions"
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("drop function perdure.nearest_memories")
    await connection.close()
    assert await answers(store, queries) == expected, "without it the process compares again"
    await store.close()
    await old.close()


async def test_a_process_that_searches_often_compares_itself(postgres_url: str) -> None:
    if not await available(postgres_url):
        pytest.skip("this PostgreSQL has no pgvector")
    pytest.importorskip("numpy")
    store = await open_store(postgres_url)
    client = Client(store)
    await client.memory.write("the pool has 50 connections")
    assert await store.memories.index_vectors()
    kept = store.memories._vectors._kept  # type: ignore[attr-defined]
    for n in range(ASKED + 1):
        assert not kept
        [hit] = await client.memory.search("pool", mode="vector")
        assert hit.entry.text == "the pool has 50 connections", n
    assert kept
    await store.close()


async def test_without_the_right_to_create_the_extension_the_process_compares(postgres_url: str) -> None:
    admin = await asyncpg.connect(postgres_url)
    await admin.execute("drop role if exists perdure_no_pgvector")
    await admin.execute("create role perdure_no_pgvector login password 'x'")
    await admin.execute("grant usage on schema perdure to perdure_no_pgvector")
    await admin.execute("grant select, insert, update, delete on all tables in schema perdure to perdure_no_pgvector")
    await admin.execute("grant usage on all sequences in schema perdure to perdure_no_pgvector")
    try:
        host = postgres_url.rpartition("@")[2]
        store = await open_store(f"postgresql://perdure_no_pgvector:x@{host}")
        client = Client(store)
        await client.memory.write("the pool has 50 connections")
        assert await client.memory.reindex() == 0
        assert not await store.memories.index_vectors()
        assert len(await client.memory.search("pool", mode="vector")) == 1
        await store.close()
    finally:
        await admin.execute("drop owned by perdure_no_pgvector")
        await admin.execute("drop role perdure_no_pgvector")
        await admin.close()


async def test_sqlite_has_none(fresh_store_url: object) -> None:
    store = await open_store("memory:")
    await store.schema.migrate()
    assert not await store.memories.index_vectors()
    await store.close()
