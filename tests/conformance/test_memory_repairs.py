"""`fsck --fix` on long-term memory: what lacks terms or vectors is found again, and sums are those of the entries."""

from __future__ import annotations

import pytest

from perdure import Client
from perdure.memory.tokens import terms_of
from perdure.store.protocol import Store
from tests.conformance.healthy_jobs import fsck
from tests.conformance.sql_shell import open_shell

TEXTS = ["the pool has 50 connections", "日志问题已经解决", "the shop deploys on Mondays", "an old note about invoices"]
DAMAGE = {
    "some terms": "delete from memory_terms where entry_no = 1 and term <> 'pool'",
    "all terms": "delete from memory_terms where entry_no < 4",
    "what searches are narrowed by": "delete from memory_terms where entry_no = 1 and term like '#kind%';"
    " delete from memory_terms where entry_no = 2 and term like '#tag%'",
    "a wrong count": "update memory_terms set count = count + 1 where entry_no = 3 and term = 'shop'",
    "a vector": "delete from memory_vectors where entry_no = 2",
    "all vectors and sums": "delete from memory_vectors; update memory_scopes set entries = 9, tokens = 9",
    "terms of an archived entry": "insert into memory_terms (scope_no, term, entry_no, count, length)"
    " values (1, 'pool', 4, 1, 1)",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
async def test_what_searches_would_not_find_is_found_after_a_repair(
    file_store: Store, file_store_url: str, damage: str
) -> None:
    client = Client(file_store)
    written = [await client.memory.write(text, scope="tenant", tags=["team"]) for text in TEXTS]
    await client.memory.archive(written[3].id)
    assert await fsck(file_store) == []
    async with open_shell(file_store_url) as shell:
        for statement in damage.split(";"):
            await shell.run(statement)
    found = await fsck(file_store)
    assert found
    assert all(f.fixable and not f.fixed for f in found)
    assert all(f.fixed for f in await fsck(file_store, fix=True))
    assert await fsck(file_store) == []
    for text, query in zip(TEXTS[:3], ("pool connections", "日志问题", "shop Mondays"), strict=True):
        for mode in ("text", "vector"):
            assert (await client.memory.search(query, 1, mode=mode))[0].entry.text == text
            [narrowed] = await client.memory.search(query, 1, mode=mode, tags=["team"], kind="note")
            assert narrowed.entry.text == text
    assert TEXTS[3] not in {hit.entry.text for hit in await client.memory.search("pool invoices", 10)}
    [head] = await file_store.memories.memory_scopes(None)
    assert (head.entries, head.tokens) == (3, sum(terms_of(text).total() for text in TEXTS[:3]))
