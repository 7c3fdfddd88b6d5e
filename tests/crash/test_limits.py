"""kill -9 where a slot of a concurrency key is taken, given back and handed on.

Two jobs of a key with one slot never hold a lease at the same time, and no job that waits for it is forgotten.
"""

import asyncio
from itertools import pairwise
from uuid import UUID

import pytest

from tests.crash.apps import Errand, Op, make_app, result_of
from tests.crash.invariants import Case, check
from tests.crash.processes import Crew, all_ended

pytestmark = pytest.mark.crash

WORK = Errand([Op("step", "one", 0.02)])
JOBS = 3
KILLS = (
    ("during claim",),
    ("after claim",),
    ("inside one",),
    ("before finish COMPLETED",),
    ("during finish COMPLETED",),
    ("after finish COMPLETED",),
    ("after finish COMPLETED", "before release_held"),
    ("after finish COMPLETED", "during release_held"),
    ("after finish COMPLETED", "after release_held"),
    ("after finish COMPLETED", "after release_held", "during claim"),
    ("after claim", "after claim"),
)
"""Where the workers of a queue are killed, one after the other. Each queue has a key of its own."""


async def test_a_slot_is_neither_held_twice_nor_lost(crew: Crew) -> None:
    jobs: dict[int, list[UUID]] = {}
    async with make_app(crew.url) as app:
        for number in range(len(KILLS)):
            handles = [
                await app.enqueue("errand", WORK, queue=f"q{number}", concurrency_key=f"key {number}", max_concurrent=1)
                for _ in range(JOBS)
            ]
            jobs[number] = [handle.id for handle in handles]
        places = asyncio.Semaphore(6)
        await asyncio.gather(*(kill(crew, places, number) for number in range(len(KILLS))))
        fresh = crew.start(queues=tuple(f"q{number}" for number in range(len(KILLS))))
        await all_ended(app)
        await crew.dismiss(fresh)
        assert [finding async for finding in app.database.fsck()] == []
        assert [limit for limit in await app.limits.list() if limit.in_use] == []
    snapshot = await check(crew.url, [id for ids in jobs.values() for id in ids], at_rest=True)
    for number, ids in jobs.items():
        cases = [snapshot.of(id) for id in ids]
        for case in cases:
            assert case.status == "COMPLETED", case.log()
            assert case.job["result"] == result_of(WORK)
        spans = sorted(span for case in cases for span in leases_of(case))
        assert len(spans) >= JOBS
        for before, after in pairwise(spans):
            assert before[1] <= after[0], f"two leases of one slot at once: {KILLS[number]}"


async def kill(crew: Crew, places: asyncio.Semaphore, number: int) -> None:
    """Start the workers of a queue, each of which kills itself."""
    async with places:
        for point in KILLS[number]:
            child = crew.start(queues=(f"q{number}",), kill_at=point)
            assert await child.ended() == -9


def leases_of(case: Case) -> list[tuple[float, float]]:
    """When each attempt of a job began and ended."""
    spans, began = [], None
    for event in case.events:
        if event["type"] == "run_started":
            began = event["created_at"]
        elif began is not None and event["to_status"] not in (None, "WAITING", "RUNNING"):
            spans.append((began, event["created_at"]))
            began = None
    assert began is None
    return spans
