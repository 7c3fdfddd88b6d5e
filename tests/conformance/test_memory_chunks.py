"""Long entries are found by their chunks, whose vectors are written with them."""

from __future__ import annotations

import random
import time
from itertools import pairwise

import pytest

from perdure import Client
from perdure.memory.chunks import LONGEST, Chunk, chunks_of, said_of
from perdure.memory.embedding import packed, unit
from perdure.model.memory import MOST_TEXT
from perdure.store.memory_vectors import Matrix, NumpyMatrix, PythonMatrix
from perdure.store.protocol import Store

GUIDE = "\n".join(
    [
        "# Handbook",
        "",
        "Welcome to the team. " * 30,
        "",
        "## Deployment",
        "",
        "The shop is deployed on Mondays from branch release. " * 15,
        "",
        "## 备份",
        "",
        "数据库备份每天凌晨三点进行,由小王检查。" * 40,
        "",
        "## Limits",
        "",
        "| service | limit |",
        "|---|---|",
        *(f"| service {n} | {n * 7} requests a second |" for n in range(60)),
        "",
        "```sh",
        *(f"restart --service {n}" for n in range(30)),
        "```",
        "",
        "- certificates expire in March",
        "- invoices are rounded to cents",
    ]
)


def parts(text: str) -> list[str]:
    """The chunks of a text as text."""
    return [text[chunk.start : chunk.end] for chunk in chunks_of(text)]


def test_a_short_text_is_one_chunk() -> None:
    assert chunks_of("a text\n\n# with a heading") == [Chunk(0, 24, "")]
    assert len(chunks_of("x" * LONGEST)) == 1
    assert len(chunks_of("日" * LONGEST)) == 2


def test_chunks_follow_the_structure() -> None:
    found = chunks_of(GUIDE)
    said = [said_of(GUIDE, chunk) for chunk in found]
    assert found[0].start == 0
    assert found[-1].end == len(GUIDE)
    for before, after in pairwise(found):
        assert GUIDE[before.end : after.start].strip() == "", "nothing is left out"
    for part in parts(GUIDE):
        assert not part.splitlines()[-1].startswith("#"), "a heading stays with what is below it"
        assert part.count("```") in (0, 2), "a block of code that fits is not cut"
    for chunk in found:
        assert GUIDE[chunk.end - 1] in ".。|`s", "between sentences, rows or items"
    tables = [text for text in said if "requests a second" in text]
    assert len(tables) > 1
    assert all("Limits" in text and "| service | limit |" in text for text in tables), (
        "each has heading and head of the table"
    )
    backups = [text for text in said if "凌晨三点" in text]
    assert len(backups) > 1
    assert all("备份\n" in text for text in backups)


@pytest.mark.parametrize(
    "text", ["x" * MOST_TEXT, "日" * MOST_TEXT, "# h\n" * 5_000, "| a |\n" * 3_000, "```\n" * 5_000, "a b. " * 4_000]
)
def test_chunks_of_any_text_are_bounded(text: str) -> None:
    found = chunks_of(text)
    assert len(found) <= 4 * MOST_TEXT // LONGEST
    assert all(chunk.start < chunk.end and len(text[chunk.start : chunk.end]) <= LONGEST for chunk in found)


def test_no_chunk_is_empty() -> None:
    """Endpoints refuse to make a vector of nothing."""
    text = "x" * 2 * LONGEST + " " * 2 * LONGEST + "\n\n" + "y" * LONGEST
    assert all(said_of(text, chunk).strip() for chunk in chunks_of(text))


def test_a_long_line_of_blanks_takes_no_time() -> None:
    began = time.process_time()
    chunks_of("#" + " " * (MOST_TEXT - 2) + "\n")
    assert time.process_time() - began < 0.5


async def test_a_hit_names_the_chunk_that_fits(store: Store) -> None:
    client = Client(store)
    guide = await client.memory.write(GUIDE)
    short = await client.memory.write("Ann prefers short answers.")
    for query, wanted in (
        ("on which day is the shop deployed?", "deployed on Mondays"),
        ("数据库什么时候备份?", "凌晨三点"),
        ("when do certificates expire?", "certificates expire in March"),
    ):
        for mode in ("hybrid", "text", "vector"):
            [hit] = await client.memory.search(query, 1, mode=mode)
            assert hit.entry.id == guide.id
            assert wanted in hit.passage, mode
            assert (hit.chunk.of, hit.passage) == (len(parts(GUIDE)), parts(GUIDE)[hit.chunk.number - 1])
            assert f"part {hit.chunk.number} of {hit.chunk.of}" in hit.why
    found = await client.memory.search("Ann prefers short answers", 5, mode="vector")
    assert [hit.entry.id for hit in found] == [short.id, guide.id], "each entry once"
    assert (found[0].chunk.number, found[0].chunk.of, found[0].passage) == (1, 1, short.text)
    assert "part" not in found[0].why


async def test_all_chunks_leave_and_come_back_with_their_entry(store: Store) -> None:
    client = Client(store)
    guide = await client.memory.write(GUIDE)

    async def passages() -> list[str]:
        return [hit.passage for hit in await client.memory.search("certificates", 1, mode="vector")]

    [before] = await passages()
    await client.memory.archive(guide.id)
    assert await passages() == []
    await client.memory.restore(guide.id)
    assert await passages() == [before]
    assert await client.memory.reindex(every=True) == 1
    assert await passages() == [before]


def test_chunks_of_one_entry_do_not_take_the_places_of_others() -> None:
    """With numpy and without it."""
    chance = random.Random(7)
    rows = [
        (no, chunk, packed(unit([chance.uniform(-1, 1) for _ in range(8)])))
        for no in range(1, 40)
        for chunk in range(60 if no == 3 else chance.randint(1, 4))
    ]
    matrices: list[Matrix] = [PythonMatrix(8), NumpyMatrix(8)]
    for matrix in matrices:
        matrix.change(rows)
        matrix.change([(5, 0, None), *(row for row in rows if row[0] == 6 and row[1] < 1)])
    for _ in range(20):
        query = unit([chance.uniform(-1, 1) for _ in range(8)])
        found = [matrix.nearest(query, 10, None) for matrix in matrices]
        assert found[0] == found[1]
        assert len({ranked.no for ranked in found[0]}) == 10
        assert 5 not in {ranked.no for ranked in found[0]}
