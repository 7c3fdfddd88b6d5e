"""A prune that exports is killed: every job is in the file or in the database, whole, at every moment."""

import asyncio
import json
import random
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from perdure import App
from tests.conformance.sql_shell import open_shell
from tests.crash.invariants import check
from tests.crash.processes import Crew, until
from tests.crash.pruner import FILE, POINTS

pytestmark = pytest.mark.crash

JOBS = 12
KILLS = 8


async def finished(url: str, number: int) -> set[UUID]:
    """Jobs that are over."""
    async with App(url, migrate=True) as app:
        handles = [await app.enqueue("echo", "x" * 2000, elsewhere=True) for _ in range(number)]
    async with open_shell(url) as shell:
        await shell.run("update jobs set status = 'CANCELLED'")
    return {handle.id for handle in handles}


def lines(file: Path) -> Iterator[dict[str, Any]]:
    """The records of a file whose end may be torn off, as a careful reader finds them."""
    text, rest = b"", file.read_bytes() if file.exists() else b""
    while rest:
        member = zlib.decompressobj(wbits=31)
        text += member.decompress(rest)
        rest = member.unused_data
    for line in text.split(b"\n")[:-1]:
        yield json.loads(line)


def exported(file: Path) -> set[UUID]:
    """The jobs that are whole in a file."""
    found: set[UUID] = set()
    events = 0
    for record in lines(file):
        if record["record"] == "job":
            events = 0
        events += record["record"] == "event"
        if record["record"] == "end":
            assert record["events"] == events == 2
            found.add(UUID(record["job_id"]))
    return found


async def check_nothing_is_lost(crew: Crew, jobs: set[UUID]) -> int:
    """Returns how many are still in the database."""
    safe = exported(crew.place / FILE)
    snapshot = await check(crew.url, jobs - safe)
    there = set(snapshot.jobs)
    assert there | safe == jobs, "neither here nor there"
    return len(there)


@pytest.mark.parametrize("point", POINTS)
async def test_killed_at(crew: Crew, point: str) -> None:
    jobs = await finished(crew.url, JOBS)
    pruner = crew.start(role="pruner", kill_at=point)
    assert await pruner.ended() == -9, pruner.log
    assert await check_nothing_is_lost(crew, jobs) > 0
    again = crew.start(role="pruner")
    assert await again.ended() == 0, again.log
    assert await check_nothing_is_lost(crew, jobs) == 0
    assert exported(crew.place / FILE) == jobs


async def test_killed_at_any_moment(crew: Crew) -> None:
    jobs = await finished(crew.url, 300)
    for number in range(KILLS):
        pruner = crew.start(role="pruner")
        await until(lambda number=number: len(crew.lines("ready")) > number, what="the pruner")  # type: ignore[misc]
        await asyncio.sleep(random.uniform(0, 0.15))
        pruner.kill()
        await check_nothing_is_lost(crew, jobs)
    last = crew.start(role="pruner")
    assert await last.ended() == 0, last.log
    assert await check_nothing_is_lost(crew, jobs) == 0
    assert exported(crew.place / FILE) == jobs
