"""kill -9 around signals, of the worker between any two writes: each is taken once, in whichever order the two come."""

import asyncio

import pytest

from perdure import App
from perdure.model.jobs import Job
from tests.crash.apps import Errand, Op, make_app, result_of
from tests.crash.invariants import check
from tests.crash.processes import Crew, all_ended

pytestmark = pytest.mark.crash

ERRAND = Errand([Op("step", "one"), Op("signal", "paid"), Op("step", "last")])
BEFORE = ("after record node_finished one", "before record wait_started paid")
BEGINNING = (
    "during record wait_started paid",
    "after record wait_started paid",
    "before finish PARKED",
    "during finish PARKED",
    "after finish PARKED",
)
TAKING = (
    "before record wait_completed paid",
    "during record wait_completed paid",
    "after record wait_completed paid",
)


async def send(app: App, job: Job) -> None:
    """The first is for the job, the others change nothing: the same one again, and one that no wait asks for."""
    for id in ("a", "a"):
        await app.signal(job.id, "paid", "paid", id=id)
    await app.signal(job.id, "other", id="b")


@pytest.mark.parametrize(
    ("kill_at", "when"),
    [
        *((point, "early") for point in (*BEFORE, *BEGINNING[:2], *TAKING)),
        *((point, "waiting") for point in TAKING),
        *((point, "killed") for point in (*BEFORE, *BEGINNING)),
        *((point, "next") for point in (*BEFORE, *BEGINNING)),
    ],
)
async def test_killed_at(crew: Crew, kill_at: str, when: str) -> None:
    """when: the signals come before there is a worker, while the job waits, after its worker was killed and before there is
    another, or while that one is there."""
    async with make_app(crew.url) as app:
        await app.database.migrate()
        handle = await app.enqueue("errand", ERRAND)
        if when == "early":
            await send(app, await handle.get())
        first = crew.start(kill_at=kill_at)
        if when == "waiting":
            async with asyncio.timeout(60):
                while not (await handle.get()).waits:
                    await asyncio.sleep(0.02)
            await send(app, await handle.get())
        assert await first.ended() == -9
        if when == "killed":
            await send(app, await handle.get())
        second = crew.start()
        if when == "next":
            await send(app, await handle.get())
        await all_ended(app, [handle.id])
        await crew.dismiss(second)
        found = {signal.key: signal.wait_key for signal in await app.jobs.signals(handle)}
    assert found == {"paid": "paid", "other": None}
    case = (await check(crew.url, [handle.id], at_rest=True)).of(handle.id)
    assert case.status == "COMPLETED", case.log()
    assert case.job["result"] == result_of(ERRAND)
    assert case.keys("wait_started", "wait_completed") == ["paid", "paid"]
