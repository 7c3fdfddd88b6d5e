"""Long-term memory: what is written is found, alike in every store."""

from __future__ import annotations

import pytest

from perdure import Client
from perdure.memory.tokens import terms_of
from perdure.model.effects import write_memory
from perdure.model.errors import LeaseLost, NotFound
from perdure.model.memory import MemoryHit
from perdure.runtime.memory_checks import new_memory
from perdure.store.protocol import Store
from tests.conformance.support import event, run_out, started

POOL = "用户曾排查日志中 connection pool 耗尽问题,根因是上游服务限流配置过低,建议调整至 100 QPS。"
QUESTION = "上次那个日志问题后来怎么解决的?"
OTHERS = [
    "用户喜欢深色模式,编辑器字体为 14 号。",
    "The deployment of the shop runs every Monday at 09:00 from branch release.",
    "Ann prefers answers in English, with short sentences.",
    "数据库备份每天凌晨三点进行,保留三十天。",
    "用户的项目 perdure 使用 Python 3.11 和 PostgreSQL 16。",
    "The invoice template lives in templates/invoice.html; totals are rounded to cents.",
    "会议纪要:下周二讨论新的支付接口,负责人是小王。",
]


def texts(hits: list[MemoryHit]) -> list[str]:
    """What was found, in order."""
    return [hit.entry.text for hit in hits]


async def filled(store: Store) -> Client:
    """A client on a store with some entries."""
    client = Client(store)
    for text in (*OTHERS[:4], POOL, *OTHERS[4:]):
        await client.memory.write(text)
    return client


@pytest.mark.parametrize("mode", ["hybrid", "text", "vector"])
async def test_a_whole_chinese_sentence_finds_the_entry(store: Store, mode: str) -> None:
    client = await filled(store)
    [first, *_] = await client.memory.search(QUESTION, mode=mode)
    assert first.entry.text == POOL
    assert first.entry.scope == f"user:{store.tenant_id}"
    if mode != "vector":
        assert first.text_rank == 1
        assert first.terms
    if mode != "text":
        assert first.vector_rank is not None
        assert first.vector_score is not None
    assert first.why


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("when is the shop deployed?", OTHERS[1]),
        ("branches", OTHERS[1]),
        ("备份什么时候", OTHERS[3]),
        ("PERDURE 用的 python", OTHERS[4]),
    ],
)
async def test_words_are_found_in_other_forms(store: Store, query: str, found: str) -> None:
    client = await filled(store)
    assert texts(await client.memory.search(query, 1)) == [found]
    assert texts(await client.memory.search(query, 1, mode="text")) == [found]


async def test_it_commits_with_the_events_of_its_job(store: Store) -> None:
    lease = await started(store)
    new = new_memory(POOL, scope="user:ann", created_by="job:agent")
    await store.leases.record(lease, [event("written")], effects=write_memory(store.tenant_id, new))
    await store.leases.record(lease, [event("again")], effects=write_memory(store.tenant_id, new))
    [hit] = await Client(store).memory.search(QUESTION, scope="user:ann")
    assert (hit.entry.job_id, hit.entry.created_by, hit.entry.id) == (lease.job_id, "job:agent", new.id)
    [head] = await store.memories.memory_scopes(None)
    assert (head.entries, head.tokens) == (1, terms_of(POOL).total())


async def test_without_the_lease_nothing_is_written(store: Store) -> None:
    lease = await started(store)
    await run_out(store, lease)
    new = new_memory(POOL, scope="tenant", created_by="job:agent")
    with pytest.raises(LeaseLost):
        await store.leases.record(lease, [event("written")], effects=write_memory(store.tenant_id, new))
    assert await store.memories.memory_scopes(None) == []
    with pytest.raises(NotFound):
        await store.memories.get_memory(new.id)
