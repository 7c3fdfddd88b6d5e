"""Several worker processes after the same jobs: each job runs once."""

import pytest

from perdure import Request
from tests.crash.apps import make_app
from tests.crash.invariants import check
from tests.crash.processes import Crew, all_ended

pytestmark = pytest.mark.crash

JOBS = 500


@pytest.mark.parametrize("workers", [2, 4])
async def test_each_job_runs_once(crew: Crew, workers: int) -> None:
    async with make_app(crew.url) as app:
        handles = await app.enqueue_many([Request("count", n) for n in range(JOBS)])
        children = [crew.start(lease=30, concurrency=20) for _ in range(workers)]
        await all_ended(app)
        await crew.dismiss(*children)
        snapshot = await check(crew.url, [handle.id for handle in handles], at_rest=True)
    counted = [line.split() for line in crew.lines("counted")]
    assert sorted(int(number) for _, number, _ in counted) == list(range(JOBS))
    assert {job["attempt"] for job in snapshot.jobs.values()} == {1}
    assert snapshot.statuses() == {"COMPLETED": JOBS}
