"""kill -9 where a slot of a concurrency key is taken, given back and handed on.

Two jobs of a key with one slot never hold a lease at the same time, and no job that waits for it is forgotten. The same
where a start of a key with a rate is counted.
"""

import asyncio
from itertools import pairwise
from uuid import UUID

import pytest

from perdure import App
from perdure.chaos.processes import TIMEOUT
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
RATE_KILLS = (("during claim",), ("after claim",), ("inside one",), ("after finish COMPLETED",))


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
        await asyncio.gather(*(kill(crew, places, number, points) for number, points in enumerate(KILLS)))
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


RATE = 3


async def test_a_rate_holds_and_no_job_is_lost(crew: Crew) -> None:
    """Each queue has a key of its own, of which fewer jobs may start than there are."""
    handles: dict[str, list[UUID]] = {}
    async with make_app(crew.url) as app:
        for number in range(len(RATE_KILLS)):
            key = f"rated {number}"
            handles[key] = [
                (await app.enqueue("errand", WORK, queue=f"q{number}", concurrency_key=key, max_per_minute=RATE)).id
                for _ in range(RATE + 1)
            ]
        places = asyncio.Semaphore(4)
        await asyncio.gather(*(kill(crew, places, n, points) for n, points in enumerate(RATE_KILLS)))
        fresh = crew.start(queues=tuple(f"q{number}" for number in range(len(RATE_KILLS))))
        async with asyncio.timeout(TIMEOUT):
            while not all([await used_up(app, key) for key in handles]):
                await asyncio.sleep(0.1)
        lifted = (await (await app.open()).now()).timestamp()
        for key in handles:
            await app.limits.set(key, per_minute=1000)
        await all_ended(app)
        await crew.dismiss(fresh)
        assert [finding async for finding in app.database.fsck()] == []
    snapshot = await check(crew.url, [id for ids in handles.values() for id in ids], at_rest=True)
    for key, ids in handles.items():
        cases = [snapshot.of(id) for id in ids]
        assert [case.status for case in cases] == ["COMPLETED"] * (RATE + 1)
        starts = [began for case in cases for began, _ in leases_of(case)]
        assert sum(began < lifted for began in starts) == RATE, f"starts of {key}: {sorted(starts)}, lifted at {lifted}"


async def used_up(app: App, key: str) -> bool:
    """Whether no more jobs of a key may start, and none runs."""
    limit = await app.limits.get(key)
    return limit.rate is not None and limit.rate.started == RATE and limit.in_use == 0 and limit.waiting > 0


async def kill(crew: Crew, places: asyncio.Semaphore, number: int, points: tuple[str, ...]) -> None:
    """Start the workers of a queue, each of which kills itself."""
    async with places:
        for point in points:
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
