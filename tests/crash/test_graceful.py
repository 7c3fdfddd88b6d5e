"""SIGTERM: what runs is finished and recorded, what is left goes back without a retry, and a second one stops at once."""

import asyncio
import signal

import pytest

from perdure import App, Handle, Status
from tests.crash.apps import Errand, Op, make_app
from tests.crash.invariants import check
from tests.crash.processes import Crew, all_ended, until

pytestmark = pytest.mark.crash

STEPS = ("step", "thread")


async def test_running_steps_finish_and_their_jobs_go_on_elsewhere(crew: Crew) -> None:
    async with make_app(crew.url) as app:
        jobs = [await enqueue(app, do) for do in STEPS]
        parked = await app.enqueue("errand", Errand([Op("step", "one"), Op("sleep", "nap", 2.5), Op("step", "two")]))
        first = crew.start(lease=30, linger=3600)
        await until(lambda: all((1, "one") in crew.effects(j.id) for j in (*jobs, parked)), what="the steps")
        while await parked.status() is not Status.WAITING:
            await asyncio.sleep(0.02)

        first.signal(signal.SIGTERM)
        while await parked.status() is Status.WAITING:
            await asyncio.sleep(0.02)
        later = await app.enqueue("count", 1)
        assert first.exit_code is None, "it waits for its steps"
        crew.open("step-1")
        assert await first.ended() == 0, first.log
        snapshot = await check(crew.url)
        for job in (*jobs, parked):
            case = snapshot.of(job.id)
            assert (case.status, case.job["retry_count"]) == (Status.RETRY, 0), case.log()
            assert case.keys("node_finished") == ["one"]
        assert snapshot.jobs[later.id]["status"] == Status.PENDING, "it claims nothing any more"

        second = crew.start(lease=30)
        await all_ended(app)
        await crew.dismiss(second)
        snapshot = await check(crew.url, at_rest=True)
    for job in (*jobs, parked):
        case = snapshot.of(job.id)
        assert (case.status, case.job["retry_count"]) == (Status.COMPLETED, 0), case.log()
        assert [name for _, name in crew.effects(job.id)] == ["one", "two"], "nothing ran twice"


@pytest.mark.parametrize("what", [*STEPS, "blocking"])
async def test_a_second_signal_stops_at_once(crew: Crew, what: str) -> None:
    """The step would have gone on for ever: it is cut off, and runs again elsewhere. Threads, which nothing can interrupt,
    do not keep the process alive."""
    async with make_app(crew.url) as app:
        job = await enqueue(app, what)
        first = crew.start(lease=30, fresh=True)
        await until(lambda: len(crew.effects(job.id)) == 1, what="the step")
        first.signal(signal.SIGTERM)
        await asyncio.sleep(0.2)  # two signals at the same moment are one
        first.signal(signal.SIGTERM)
        assert await first.ended(patience=25) == 0, first.log
        case = (await check(crew.url)).of(job.id)
        assert (case.status, case.job["retry_count"], case.keys("node_finished")) == (Status.RETRY, 0, []), case.log()

        crew.open("step-2")
        second = crew.start(lease=30)
        await all_ended(app)
        await crew.dismiss(second)
        case = (await check(crew.url, at_rest=True)).of(job.id)
    assert (case.status, case.job["retry_count"]) == (Status.COMPLETED, 0), case.log()
    assert case.keys("node_finished") == (["one"] if what == "blocking" else ["one", "two"])


async def enqueue(app: App, what: str) -> Handle[object]:
    """A job that is held in its first step, of a kind that runs in the loop or in a thread; or all of it in a thread."""
    if what == "blocking":
        return await app.enqueue("blocking", "step")
    first = Op("thread" if what == "thread" else "step", "one", gate="step")
    return await app.enqueue("errand", Errand([first, Op("step", "two")]))
