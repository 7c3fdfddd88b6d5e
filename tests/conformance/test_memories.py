"""Long-term memory: what is written is found, alike in every store."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import sys
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from perdure import Client
from perdure.memory.embedding import packed
from perdure.memory.postings import portions
from perdure.memory.tokens import prefixes, query_terms, terms_of
from perdure.model.effects import write_memory
from perdure.model.errors import (
    AmbiguousId,
    EmptyQuery,
    EntrySuperseded,
    InvalidInput,
    LeaseLost,
    MixedDimensions,
    NotFound,
    PerdureError,
    TextTooLong,
    UnknownScope,
)
from perdure.model.ids import short_id, uuid7
from perdure.model.memory import MOST_TEXT, MemoryHit
from perdure.runtime.memory_checks import leave_of, new_memory
from perdure.store.memory_vectors import PythonMatrix, ScopeVectors
from perdure.store.open import open_store
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


async def test_what_is_superseded_or_archived_is_found_no_longer(store: Store) -> None:
    client = await filled(store)
    [old] = await client.memory.search("connection pool", 1)
    new = await client.memory.supersede(old.entry.id, "The connection pool has 50 connections now.", source="ann")
    assert (new.scope, new.kind, new.source) == (old.entry.scope, old.entry.kind, "ann")
    assert texts(await client.memory.search(QUESTION, 1, mode="text")) != [POOL]
    assert texts(await client.memory.search("connection pool", 1)) == [new.text]
    before = await client.memory.get(old.entry.id)
    assert (before.live, before.superseded_by) == (False, new.id)
    assert [e.id for e in (await client.memory.list(live=False)).items] == [before.id]

    assert not (await client.memory.archive(new.id)).live
    assert POOL not in texts(await client.memory.search("connection pool", 10))
    await client.memory.archive(new.id)  # again: nothing changes
    await client.memory.restore(before.id)
    assert texts(await client.memory.search(QUESTION, 1)) == [POOL]
    await check_sums(store)


async def test_an_entry_is_superseded_once(store: Store) -> None:
    memory = Client(store).memory
    old = await memory.write("The pool has 20 connections.")
    both = await asyncio.gather(
        *(memory.supersede(old.id, f"The pool has {n} connections.") for n in (30, 40)), return_exceptions=True
    )
    [new] = [one for one in both if not isinstance(one, BaseException)]
    [error] = [one for one in both if isinstance(one, EntrySuperseded)]
    assert error.superseded_by == new.id == (await memory.get(old.id)).superseded_by
    with pytest.raises(EntrySuperseded, match=f"was superseded by entry …{short_id(new.id)}"):
        await memory.supersede(old.id, "The pool has 50 connections.")
    assert [e.id for e in (await memory.list()).items] == [new.id]
    await check_sums(store)

    last = await memory.supersede(new.id, "The pool has 60 connections.")
    await memory.archive(last.id)
    again = await memory.supersede(last.id, "The pool has 70 connections.")
    assert (await memory.get(last.id)).superseded_by == again.id
    leave = leave_of(last.id, last.text, again.id)._replace(replaces=True)
    await store.memories.change_memories(leave=[leave])  # again, as after a lost answer
    await check_sums(store)


async def check_sums(store: Store) -> None:
    """The sums of each scope are those of its entries."""
    for head in await store.memories.memory_scopes(None):
        found = await store.memories.list_memories(scopes=[head.scope], live=True, limit=10_000)
        lengths = [terms_of(entry.text).total() for _, entry in found]
        assert (head.entries, head.tokens) == (len(lengths), sum(lengths))


async def test_all_that_a_job_wrote_is_undone(store: Store) -> None:
    client = await filled(store)
    [kept] = await client.memory.search("connection pool", 1)
    lease = await started(store)
    news = [new_memory(f"a wrong note {n}", scope=kept.entry.scope, created_by="job:agent") for n in range(3)]
    await store.leases.record(
        lease, [event("written")], effects=[effect for new in news for effect in write_memory(store.tenant_id, new)]
    )
    await store.memories.change_memories(leave=[leave_of(kept.entry.id, kept.entry.text, news[0].id)])
    assert len(await client.memory.search("wrong note", 10, mode="text")) == 3

    undone = await client.memory.undo(lease.job_id)
    assert {entry.id for entry in undone} == {new.id for new in news}
    assert not any(entry.live for entry in undone)
    assert await client.memory.search("wrong note", 10, mode="text") == []
    assert texts(await client.memory.search(QUESTION, 1)) == [POOL]
    assert await client.memory.undo(lease.job_id) == []
    with pytest.raises(NotFound):
        await client.memory.undo(uuid7())
    await check_sums(store)


async def test_scopes_and_filters_come_before_the_best_are_chosen(store: Store) -> None:
    """However many entries of others would be better."""
    client = Client(store)
    for n in range(60):
        await client.memory.write(f"the pool the pool the pool {n}", scope="user:bob")
    [last] = (await client.memory.list(limit=1)).items
    while (start := await store.now()) <= last.created_at:
        await asyncio.sleep(0.001)
    mine = await client.memory.write(
        "a longer text in which the pool is named once", scope="user:ann", tags=["db", "x"]
    )
    later = await client.memory.write("the pool is named", scope="user:ann", tags=["db"], kind="fact")
    for mode in ("hybrid", "text", "vector"):
        found = await client.memory.search("pool", 1, mode=mode, scope=["user:ann", "project:none"])
        assert [hit.entry.scope for hit in found] == ["user:ann"]
        assert [h.entry.id for h in await client.memory.search("pool", mode=mode, tags=["x", "db"])] == [mine.id]
        assert [h.entry.id for h in await client.memory.search("pool", mode=mode, kind="fact")] == [later.id]
        ids = {h.entry.id for h in await client.memory.search("pool", mode=mode, since=start)}
        assert ids == {mine.id, later.id}
    assert await client.memory.search("pool", scope="user:carl") == []


async def test_a_pinned_entry_comes_before_equals(store: Store) -> None:
    client = Client(store)
    first = await client.memory.write("the pool has 50 connections")
    second = await client.memory.write("the pool has 60 connections")
    assert [h.entry.id for h in await client.memory.search("pool connections")] == [second.id, first.id]
    assert (await client.memory.pin(first.id)).pinned
    [hit, _] = await client.memory.search("pool connections")
    assert (hit.entry.id, hit.pin) == (first.id, 1.25)
    assert not (await client.memory.pin(str(first.id), pinned=False)).pinned


async def test_entries_are_listed_in_pages(store: Store) -> None:
    client = await filled(store)
    seen: list[UUID] = []
    cursor: str | None = None
    while True:
        page = await client.memory.list(limit=3, cursor=cursor)
        seen += [entry.id for entry in page.items]
        if (cursor := page.next_cursor) is None:
            break
    assert len(seen) == len(set(seen)) == 8
    assert seen == sorted(seen, reverse=True)
    assert (await client.memory.get(str(seen[0])[-8:])).id == seen[0]
    with pytest.raises(AmbiguousId):
        await client.memory.get("123")


async def test_tenants_see_nothing_of_each_other(file_store: Store, neighbour: Store) -> None:
    entry = await Client(file_store).memory.write(POOL, scope="tenant")
    other = Client(neighbour)
    assert await other.memory.search(QUESTION) == []
    assert await other.memory.search(QUESTION, scope="tenant") == []
    assert (await other.memory.list(live=None)).items == ()
    with pytest.raises(NotFound):
        await other.memory.archive(entry.id)


async def test_another_process_finds_what_was_written_and_changed(file_store: Store, twin: Store) -> None:
    """Also by the vectors that it keeps: they are brought up to date."""
    here, there = Client(file_store), Client(twin)
    entry = await here.memory.write(POOL)
    assert texts(await there.memory.search(QUESTION, mode="vector")) == [POOL]
    new = await here.memory.supersede(entry.id, "日志问题已经解决")
    assert texts(await there.memory.search(QUESTION, mode="vector")) == [new.text]
    await here.memory.archive(new.id)
    assert await there.memory.search(QUESTION, mode="vector") == []


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda m: m.search("  "), EmptyQuery),
        (lambda m: m.search("x" * 5000), TextTooLong),
        (lambda m: m.search("x", 0), InvalidInput),
        (lambda m: m.search("x", mode="magic"), InvalidInput),
        (lambda m: m.search("x", scope="planet:9"), UnknownScope),
        (lambda m: m.search("x", scope="user:"), UnknownScope),
        (lambda m: m.write(""), InvalidInput),
        (lambda m: m.write("x" * (MOST_TEXT + 1)), TextTooLong),
        (lambda m: m.write("nul \0"), InvalidInput),
        (lambda m: m.write("x", scope="tenant:x"), UnknownScope),
        (lambda m: m.write("x", kind=""), InvalidInput),
        (lambda m: m.list(limit=0), InvalidInput),
        (lambda m: m.list(cursor="x"), InvalidInput),
    ],
)
async def test_bad_input_is_refused_and_nothing_is_written(store: Store, call: Any, error: type[PerdureError]) -> None:
    client = Client(store)
    with pytest.raises(error) as raised:
        await call(client.memory)
    assert type(raised.value) is error
    assert str(raised.value)
    assert await store.memories.memory_scopes(None) == []


async def test_a_supersede_that_fails_changes_nothing(store: Store) -> None:
    new = new_memory("new", scope="tenant", created_by="ann")
    with pytest.raises(NotFound):
        await store.memories.change_memories(new=[new], leave=[leave_of(uuid7(), "old", new.id)])
    assert await store.memories.memory_scopes(None) == []


@pytest.mark.parametrize("counted", [None, 10], ids=["whole", "in part"])
async def test_the_stores_give_the_same_hits_in_the_same_order(
    fresh_store_url: Callable[[str], str],
    shared_postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
    counted: int | None,
) -> None:
    """Also where words have more entries than are read."""
    if counted is not None:
        monkeypatch.setattr("perdure.runtime.memory_search.COUNTED", counted)
        monkeypatch.setattr("perdure.runtime.memory_search.SAMPLE", counted)
        monkeypatch.setattr("perdure.runtime.memory_search.COMPLETED", 25)
        monkeypatch.setattr("perdure.runtime.memory_search.MOST_READ", 60)
    random_ = random.Random(5)
    words = "日志 问题 连接 配置 服务 限流 部署 数据库 备份 解决 项目 pool connection deploy branch invoice log".split()  # noqa: SIM905  a list is longer
    written = [" ".join(random_.choices(words, k=random_.randint(3, 30))) for _ in range(150)]
    queries = [" ".join(random_.choices(words, k=3)) for _ in range(10)] + [QUESTION, "how to deploy a branch?"]
    answers = []
    urls = [fresh_store_url("memory"), fresh_store_url("sqlite"), shared_postgres_url]
    for url in urls:
        store = await open_store(url, tenant=f"same-hits {counted}")
        await store.schema.migrate()
        await store.memories.change_memories(
            new=[new_memory(text, scope=f"user:{n % 3}", created_by="ann") for n, text in enumerate(written)]
        )
        client = Client(store)
        found = [
            [
                (h.entry.text, h.text_rank, h.text_score, h.vector_rank, h.vector_score)
                for h in await client.memory.search(query, 20, mode=mode, scope=scope)
            ]
            for query in queries
            for mode in ("hybrid", "text", "vector")
            for scope in (None, "user:1")
        ]
        answers.append(found)
        await store.close()
    assert all(answers[0])
    assert answers[0] == answers[1] == answers[2]


def test_of_common_words_the_newest_entries_are_read() -> None:
    assert portions({"rare": 5, "common": 900, "other": 800}, 105) == {"rare": None, "other": 50, "common": 50}
    assert portions({"one": 50, "two": 55}, 105) == {"one": None, "two": None}
    assert portions({"one": 9}, 0) == {"one": 1}


async def test_a_rare_word_finds_an_old_entry_among_many_with_common_words(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.runtime.memory_search.MOST_READ", 20)
    others = [f"the invoice of customer {n} was paid" for n in range(60)]
    written = ["invoice of the glazier, disputed", "an invoice and a customer of the past", *others]
    await store.memories.change_memories(new=[new_memory(text, scope="tenant", created_by="ann") for text in written])
    client = Client(store)
    [found] = await client.memory.search("which invoice of the glazier is disputed?", 1, mode="text")
    assert found.entry.text == written[0]
    assert set(found.terms) >= {"invoice", "glazier", "disputed"}
    [newest] = await client.memory.search("invoice", 1, mode="text")
    assert newest.entry.text in others


def test_terms() -> None:
    assert terms_of("Ａ pool, 日志 POOL") == {"a": 1, "pool": 2, "日": 1, "志": 1, "日志": 1}
    assert query_terms("上次那个日志问题后来怎么解决的?") == [
        "次那",
        "个日",
        "日志",
        "志问",
        "问题",
        "题后",
        "来怎",
        "么解",
        "解决",
    ]
    assert query_terms("the") == ["the"]
    assert query_terms("猫") == ["猫"]
    assert prefixes("branches") == ["branches", "branch"]
    assert prefixes("日志") == prefixes("log") == []


def test_a_dimension_that_does_not_fit_is_refused() -> None:
    for matrix in (PythonMatrix(2), ScopeVectors(2).matrix):
        matrix.change([(1, 0, packed([1, 0])), (2, 0, packed([0, 1])), (3, 0, None)])
        with pytest.raises(MixedDimensions, match="3 dimensions"):
            matrix.change([(4, 0, packed([1, 0, 0]))])
        assert matrix.nearest([1.0, 0.5], 5, None) == [(1, 1.0, 0), (2, 0.5, 0)]
        assert matrix.nearest([1.0, 0.5], 5, {2}) == [(2, 0.5, 0)]
        matrix.change([(1, 0, None), (5, 0, packed([0.5, 0]))])
        assert matrix.nearest([1.0, 0.5], 1, None) == [(5, 0.5, 0)]


async def exported(client: Client) -> list[str]:
    """The lines of an export."""
    return [line async for line in client.memory.export()]


async def test_an_export_restores_what_was_there(store: Store, fresh_store_url: Callable[[str], str]) -> None:
    client = await filled(store)
    [hit] = await client.memory.search(QUESTION, 1)
    await client.memory.supersede(hit.entry.id, "日志问题已经解决", tags=["logs"])
    await client.memory.pin(hit.entry.id)
    lines = await exported(client)
    assert (await client.memory.import_lines(lines)).written == 0
    other = await open_store(fresh_store_url("memory"))
    await other.schema.migrate()
    restored = Client(other)
    done = await restored.memory.import_lines([f"{line}\n" for line in lines])
    assert (done.read, done.written) == (9, 9)
    assert await exported(restored) == lines
    await check_sums(other)
    [found] = await restored.memory.search(QUESTION, 1)
    assert found.entry.text == "日志问题已经解决"
    await other.close()


async def test_a_damaged_export_is_refused_as_a_whole(store: Store, fresh_store_url: Callable[[str], str]) -> None:
    lines = await exported(await filled(store))
    other = await open_store(fresh_store_url("memory"))
    await other.schema.migrate()
    damaged = [
        [],
        lines[1:],
        lines[:-1],
        [*lines[:3], *lines[4:]],
        [*lines[:3], lines[3].replace("note", "fact"), *lines[4:]],
        [*lines[:3], "{", *lines[3:]],
        [*lines, lines[1]],
        [lines[0], '{"record": "entry", "id": "x"}', *lines[1:]],
        [lines[0].replace('"version": 1', '"version": 2'), *lines[1:]],
    ]
    for broken in damaged:
        with pytest.raises(InvalidInput, match="export of memory"):
            await Client(other).memory.import_lines(broken)
    assert await other.memories.memory_scopes(None) == []
    await other.close()


@pytest.mark.parametrize(
    "changed",
    [
        {"created_at": "2026-01-01T00:00:00"},
        {"archived_at": "2026-01-01"},
        {"pinned_at": "0001-01-01T00:00:00+00:00"},
        {"created_by": ["ann"]},
        {"created_by": "a\x00b"},
        {"created_by": "\ud800"},
        {"created_at": None},
        None,
    ],
)
async def test_an_export_with_an_entry_that_cannot_be_stored_is_refused(store: Store, changed: Any) -> None:
    """Also if its hash is right. None: the same entry twice."""
    client = Client(store)
    await client.memory.write("The pool has 20 connections.")
    [first, line, _] = await exported(client)
    entry = json.loads(line) | {"id": str(uuid7())}
    given = [entry, entry] if changed is None else [entry, entry | {"id": str(uuid7())} | changed]
    lines = [first, *map(json.dumps, given)]
    hashed = hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
    lines.append(json.dumps({"record": "end", "entries": 2, "sha256": hashed}))
    with pytest.raises(InvalidInput, match="line 3 of the export of memory"):
        await client.memory.import_lines(lines)
    assert len((await client.memory.list()).items) == 1


async def test_what_lacks_terms_or_a_vector_is_indexed_again(store: Store) -> None:
    client = await filled(store)
    bare = new_memory(POOL, scope="user:ann", created_by="sql")._replace(
        terms="{}", tokens=0, tokeniser="", vector=None
    )
    await store.memories.change_memories(new=[bare])
    assert await client.memory.search(QUESTION, scope="user:ann") == []
    assert await client.memory.reindex() == 1
    assert texts(await client.memory.search(QUESTION, scope="user:ann", mode="text")) == [POOL]
    assert texts(await client.memory.search(QUESTION, scope="user:ann", mode="vector")) == [POOL]
    assert await client.memory.reindex() == 0
    assert await client.memory.reindex(every=True) == 9
    await check_sums(store)


async def test_entry_terms_and_vector_are_written_together_or_not_at_all(store: Store) -> None:
    """The last of the three is refused by the database."""
    lease = await started(store)
    new = new_memory(POOL, scope="tenant", created_by="ann")._replace(vector=b"abc")
    with pytest.raises(PerdureError):
        await store.memories.change_memories(new=[new])
    with pytest.raises(PerdureError):
        await store.leases.record(lease, [event("written")], effects=write_memory(store.tenant_id, new))
    assert await store.memories.memory_scopes(None) == []
    assert "written" not in [e.type for e in await store.jobs.list_events(lease.job_id)]


WRITER = """
import asyncio, sys
from perdure import Client
from perdure.store.open import open_store

async def main():
    client = Client(await open_store(sys.argv[1]))
    for n in range(10_000):
        entry = await client.memory.write(f"entry {n} of the process that is killed", scope="tenant")
        print(entry.id, flush=True)

asyncio.run(main())
"""


async def test_kill_9_during_a_write_leaves_all_three_or_none(file_store: Store, file_store_url: str) -> None:
    writer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, file_store_url, stdout=asyncio.subprocess.PIPE
    )
    assert writer.stdout is not None
    written = [UUID((await writer.stdout.readline()).decode().strip()) for _ in range(20)]
    writer.kill()
    await writer.wait()
    client = Client(file_store)
    entries = (await client.memory.list(limit=1000)).items
    assert set(written) <= {entry.id for entry in entries}
    await check_sums(file_store)
    for mode in ("text", "vector"):
        found = await client.memory.search("entry of the process that is killed", 100, mode=mode)
        assert len(found) == min(len(entries), 100)
