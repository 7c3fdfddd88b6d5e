"""kill -9 between spawn, end of a child and wake of its parent, and between the last end of a batch and its callback."""

from collections import Counter

import pytest

from perdure import Request
from tests.crash.apps import make_app
from tests.crash.invariants import check
from tests.crash.processes import Crew, all_ended

pytestmark = pytest.mark.crash


@pytest.mark.parametrize(
    "kill_at",
    [
        "during record child_spawned leaf",
        "after record child_spawned leaf#2",
        "after record wait_started gather",
        "during finish PARKED",
        "during finish COMPLETED",
        "during record wait_completed gather",
    ],
)
async def test_a_parent_and_its_children(crew: Crew, kill_at: str) -> None:
    async with make_app(crew.url) as app:
        await app.database.migrate()
        handle = await app.enqueue("parent")
        first = crew.start(kill_at=kill_at, concurrency=1)  # so it parks before a child runs
        assert await first.ended() == -9
        second = crew.start()
        await all_ended(app, [handle.id])
        await crew.dismiss(second)
        assert await handle.result(1) == ["1", "2"]
        jobs = (await app.jobs.list()).items
        assert Counter(job.kind for job in jobs) == {"parent": 1, "leaf": 2}
        assert {job.parent_id for job in jobs if job.kind == "leaf"} == {handle.id}
    case = (await check(crew.url, [job.id for job in jobs], at_rest=True)).of(handle.id)
    assert case.keys("wait_started", "wait_completed") == ["gather", "gather"]


@pytest.mark.parametrize("kill_at", ["during finish COMPLETED", "after finish COMPLETED"])
async def test_a_batch_and_its_callback(crew: Crew, kill_at: str) -> None:
    """Each worker is killed at the end of a job: of one of the batch, of the other, of the callback."""
    async with make_app(crew.url) as app:
        await app.database.migrate()
        handle = await app.jobs.enqueue_batch([Request("leaf", "1"), Request("leaf", "2")], Request("callback"))
        for _ in range(2):
            assert await crew.start(kill_at=kill_at, concurrency=1).ended() == -9
        last = crew.start()
        await all_ended(app, [handle.id])
        await crew.dismiss(last)
        assert await handle.result(1) == 2
        jobs = (await app.jobs.list()).items
        assert Counter(job.kind for job in jobs) == {"callback": 1, "leaf": 2}
    case = (await check(crew.url, [job.id for job in jobs], at_rest=True)).of(handle.id)
    assert case.status == "COMPLETED"
