"""kill -9 around the answer to a kind of wait that only these tests know: it is read once, by whichever worker is there."""

import asyncio

import pytest

from tests.conformance.sql_shell import open_shell
from tests.crash.apps import Errand, Op, make_app, result_of
from tests.crash.invariants import check
from tests.crash.processes import Crew, all_ended

pytestmark = pytest.mark.crash

ERRAND = Errand([Op("step", "one"), Op("flag", "paid"), Op("step", "last")])
BEFORE_THE_ANSWER = (
    "during record wait_started paid",
    "after record wait_started paid",
    "before finish PARKED",
    "during finish PARKED",
    "after finish PARKED",
)
AFTER_THE_ANSWER = (
    "before record wait_completed paid",
    "during record wait_completed paid",
    "after record wait_completed paid",
)


async def answer(url: str) -> None:
    """Set `answered_at`, as soon as there is a wait for it."""
    open_wait = "kind = 'flag' and answered_at is null"
    async with asyncio.timeout(60), open_shell(url) as shell:
        while not await shell.run(f"select job_id from job_waits where {open_wait}"):
            await asyncio.sleep(0.05)
        await shell.run(f"update job_waits set answered_at = {shell.ago(0)} where {open_wait}")


@pytest.mark.parametrize(
    ("kill_at", "worker"),
    [
        *((point, "another") for point in BEFORE_THE_ANSWER + AFTER_THE_ANSWER),
        *((point, "none") for point in BEFORE_THE_ANSWER[1:]),
    ],
)
async def test_killed_at(crew: Crew, kill_at: str, worker: str) -> None:
    """`worker`: which one lives while the answer comes, where the first was killed before it."""
    async with make_app(crew.url) as app:
        await app.database.migrate()
        job = await app.enqueue("errand", ERRAND)
        first = crew.start(kill_at=kill_at)
        if kill_at in AFTER_THE_ANSWER:
            await answer(crew.url)
        assert await first.ended() == -9
        if kill_at in BEFORE_THE_ANSWER and worker == "none":
            await answer(crew.url)
            second = crew.start()
        else:
            second = crew.start()
            if kill_at in BEFORE_THE_ANSWER:
                await answer(crew.url)
        await all_ended(app, [job.id])
        await crew.dismiss(second)
    case = (await check(crew.url, [job.id], at_rest=True)).of(job.id)
    assert case.status == "COMPLETED", case.log()
    assert case.job["result"] == result_of(ERRAND)
    assert case.keys("wait_started", "wait_completed") == ["paid", "paid"]
