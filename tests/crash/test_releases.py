"""Code that changes under jobs, with real processes: kill -9 around the suspension, and old and new workers side by side."""

import asyncio
from uuid import UUID

import pytest

from perdure import App, Status
from perdure.chaos.processes import TIMEOUT
from tests.crash.apps import make_app
from tests.crash.invariants import check
from tests.crash.processes import Crew, all_ended

pytestmark = pytest.mark.crash

SUSPENDING = (
    "before record wait_started code:2",
    "during record wait_started code:2",
    "after record wait_started code:2",
    "before finish PARKED",
    "during finish PARKED",
    "after finish PARKED",
)
TAKEN_ON = (
    "after claim",
    "before record wait_completed code:2",
    "during record wait_completed code:2",
    "after record wait_completed code:2",
    "before finish COMPLETED",
)
POINTS = [*((kill, None) for kill in SUSPENDING), *((None, kill) for kill in TAKEN_ON)]
CHORES = 0.2


async def test_killed_while_it_suspends_and_when_it_goes_on(crew: Crew) -> None:
    """All points at once, each with a job and a queue of its own: the old release records a step and parks, the new one suspends
    the job for its changed step, and the old one goes on with it. One of the last two is killed at its point."""
    queues = [f"q{n}" for n in range(len(POINTS))]
    async with make_app(crew.url) as app:
        await app.database.migrate()
        jobs = [(await app.enqueue("report", queue=queue)).id for queue in queues]
        old = crew.start(queues=tuple(queues), linger=0.1)
        await parked(app, jobs)
        await crew.dismiss(old)

        first = [crew.start(queues=(q,), release=2, kill_at=k) for q, (k, _) in zip(queues, POINTS, strict=True) if k]
        assert await asyncio.gather(*(child.ended() for child in first)) == [-9] * len(SUSPENDING)
        new = crew.start(queues=tuple(queues), release=2)
        await waiting_for_code(app, jobs)
        before = [(await app.jobs.get(id)).attempt for id in jobs]
        await asyncio.sleep(10 * CHORES)
        assert [(await app.jobs.get(id)).attempt for id in jobs] == before, (
            "the release that does not fit leaves them alone"
        )
        await crew.dismiss(new)

        second = [crew.start(queues=(q,), kill_at=k) for q, (_, k) in zip(queues, POINTS, strict=True) if k]
        assert await asyncio.gather(*(child.ended() for child in second)) == [-9] * len(TAKEN_ON)
        old = crew.start(queues=tuple(queues))
        await all_ended(app, jobs)
        await crew.dismiss(old)
    snapshot = await check(crew.url, jobs, at_rest=True)
    for (suspending, going_on), id in zip(POINTS, jobs, strict=True):
        case = snapshot.of(id)
        assert (case.status, case.job["result"]) == (Status.COMPLETED, "search write"), case.log()
        assert case.job["retry_count"] <= 1, f"{suspending} {going_on}\n{case.log()}"
        assert [name for _, name in crew.effects(id)] == ["search", "write"], case.log()


async def test_a_rolling_deploy(crew: Crew) -> None:
    """Old and new workers serve one queue. Jobs of the new kind start at once on the new ones; jobs that began with the old code
    wait for code that fits when the old workers are gone, one of them by SIGKILL, and the third release finishes all."""
    async with make_app(crew.url, release=2) as app:
        await app.database.migrate()
        old = [crew.start(linger=0.1) for _ in range(2)]
        begun = [(await app.enqueue("report")).id for _ in range(10)]
        await parked(app, begun)
        new = [crew.start(linger=0.1, release=2) for _ in range(2)]
        await crew.ready(*old, *new)
        translations = [await app.enqueue("translate") for _ in range(20)]
        reports = [(await app.enqueue("report")).id for _ in range(10)]
        for job in translations:
            assert await job.result(timeout=TIMEOUT) == "translate"
            found = await job.get()
            assert found.started_at is not None
            assert (found.started_at - found.created_at).total_seconds() < 5
            assert found.attempt == 1
        old[0].kill()
        await crew.dismiss(old[1])
        fixed = [crew.start(release=3) for _ in range(2)]
        await all_ended(app, [*begun, *reports])
        await crew.dismiss(*new, *fixed)
    snapshot = await check(crew.url, [*begun, *reports, *(job.id for job in translations)], at_rest=True)
    versions: set[str] = set()
    for id in [*begun, *reports]:
        case = snapshot.of(id)
        assert (case.status, case.job["result"]) == (Status.COMPLETED, "search write"), case.log()
        assert case.job["retry_count"] <= 1, case.log()
        recorded = case.first("node_finished", "search")["attempt"]
        assert max(attempt for attempt, name in crew.effects(id) if name == "search") <= recorded
        versions |= {e["payload"]["version"] for e in case.events if e["type"] == "run_started"}
    assert versions == {"1", "2", "3"}


async def parked(app: App, ids: list[UUID]) -> None:
    """Wait until these are in their sleep."""
    async with asyncio.timeout(TIMEOUT):
        while {(await app.jobs.get(id)).status for id in ids} != {Status.PARKED}:
            await asyncio.sleep(0.02)


async def waiting_for_code(app: App, ids: list[UUID]) -> None:
    """Wait until these are suspended until other code comes."""

    async def waits(id: UUID) -> bool:
        job = await app.jobs.get(id)
        return job.status is Status.PARKED and any(w.kind == "code" and w.answered_at is None for w in job.waits)

    async with asyncio.timeout(TIMEOUT):
        while not all([await waits(id) for id in ids]):
            await asyncio.sleep(0.05)
