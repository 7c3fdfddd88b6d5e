"""SIGTERM: what runs is finished and recorded, what is left goes back without a retry, and a second one stops at once."""

import asyncio
import signal
from typing import Literal

import pytest

from perdure import Status
from tests.crash.apps import Errand, Op, make_app
from tests.crash.invariants import check
from tests.crash.processes import Crew, all_ended, until

pytestmark = pytest.mark.crash


async def test_a_running_step_finishes_and_the_job_goes_on_elsewhere(crew: Crew) -> None:
    async with make_app(crew.url) as app:
        job = await app.enqueue("errand", Errand([Op("step", "one", gate="step"), Op("step", "two")]))
        plain = await app.enqueue("errand", Errand([Op("thread", "one", gate="step"), Op("step", "two")]))
        waiting = await app.enqueue("errand", Errand([Op("step", "one"), Op("sleep", "nap", 0.45), Op("step", "two")]))
        first = crew.start(lease=30, linger=3600)
        await until(lambda: all((1, "one") in crew.effects(j.id) for j in (job, plain, waiting)), what="the steps")
        first.signal(signal.SIGTERM)
        later = await app.enqueue("count", 1)
        assert first.exit_code is None, "it waits for its steps"
        crew.open("step-1")
        assert await first.ended() == 0, first.log
        snapshot = await check(crew.url)
        for id in (job.id, plain.id):
            case = snapshot.of(id)
            assert (case.status, case.job["retry_count"]) == (Status.RETRY, 0), case.log()
            assert case.keys("node_finished") == ["one"]
        assert snapshot.jobs[later.id]["status"] == Status.PENDING

        second = crew.start(lease=30)
        await all_ended(app)
        await crew.dismiss(second)
        snapshot = await check(crew.url, all_ended=True)
    for id in (job.id, plain.id, waiting.id):
        case = snapshot.of(id)
        assert (case.status, case.job["retry_count"]) == (Status.COMPLETED, 0), case.log()
        assert sorted(name for _, name in crew.effects(id)) == ["one", "two"], "nothing ran twice"


@pytest.mark.parametrize("step", ["step", "thread"])
async def test_a_second_signal_stops_at_once(crew: Crew, step: Literal["step", "thread"]) -> None:
    """The step would have gone on for ever: it is cut off, and runs again elsewhere."""
    async with make_app(crew.url) as app:
        job = await app.enqueue("errand", Errand([Op(step, "one", gate="step"), Op("step", "two")]))
        first = crew.start(lease=30, fresh=True)
        await until(lambda: (1, "one") in crew.effects(job.id), what="the step")
        first.signal(signal.SIGTERM)
        await asyncio.sleep(0.2)  # two signals at the same moment are one
        first.signal(signal.SIGTERM)
        assert await first.ended(patience=20) == 0, first.log
        case = (await check(crew.url)).of(job.id)
        assert (case.status, case.job["retry_count"], case.keys("node_finished")) == (Status.RETRY, 0, []), case.log()

        crew.open("step-2")
        second = crew.start(lease=30)
        await all_ended(app)
        await crew.dismiss(second)
        case = (await check(crew.url, all_ended=True)).of(job.id)
    assert (case.status, case.job["retry_count"]) == (Status.COMPLETED, 0), case.log()
    assert [name for _, name in crew.effects(job.id)] == ["one", "one", "two"]
