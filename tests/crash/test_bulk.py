"""A rerun of many jobs is killed: the same call again does the rest, and nothing twice."""

import pytest

from perdure import App
from tests.conformance.sql_shell import open_shell
from tests.crash.processes import Crew
from tests.crash.rerunner import POINTS

pytestmark = pytest.mark.crash

JOBS = 11


@pytest.mark.parametrize("point", POINTS)
async def test_killed_at(crew: Crew, point: str) -> None:
    async with App(crew.url, migrate=True) as app:
        for number in range(JOBS):
            await app.enqueue("echo", number, elsewhere=True)
    async with open_shell(crew.url) as shell:
        await shell.run("update jobs set status = 'CANCELLED'")
    killed = crew.start(role="rerunner", kill_at=point)
    assert await killed.ended() == -9, killed.log
    async with App(crew.url) as app:
        done = await app.jobs.count(status="pending")
        assert done.get("PENDING", 0) < JOBS
        if point != "before rerun 1":
            assert done["PENDING"] >= 3
    again = crew.start(role="rerunner")
    assert await again.ended() == 0, again.log
    async with App(crew.url) as app:
        new = (await app.jobs.list(status="pending", limit=1000)).items
        old = (await app.jobs.list(status="cancelled", limit=1000)).items
        assert sorted(job.payload for job in new) == list(range(JOBS))
        assert {job.origin_id for job in new} == {job.id for job in old}
