"""kill -9 around signals, of the worker between any two writes: each is taken once, in whichever order the two come."""

import asyncio
import random
from contextlib import suppress

import pytest

from perdure import App, SignalTooLate
from perdure.model.jobs import Job
from tests.crash.apps import Errand, Op, make_app, result_of
from tests.crash.invariants import check
from tests.crash.processes import Crew, all_ended, until

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


NUMBERS = 60


async def test_senders_and_workers_are_killed(crew: Crew) -> None:
    """Every sender begins from 0 again: what the one before had sent is not sent twice."""
    async with make_app(crew.url) as app:
        await app.database.migrate()
        handle = await app.enqueue("collect", NUMBERS)
        for turn in range(1, 4):
            worker, sender = crew.start(), crew.start(role="sender")
            await until(lambda turn=turn: len(set(crew.lines("sent"))) >= 15 * turn, what="signals")  # type: ignore[misc]
            await asyncio.sleep(random.uniform(0, 0.05))
            sender.kill()
            worker.kill()
        acknowledged = {int(line) for line in crew.lines("sent") if line.isdecimal()}
        last = crew.start()
        with suppress(SignalTooLate):
            for number in range(NUMBERS):
                await app.signal(handle, "number", number, id=str(number))
        await all_ended(app, [handle.id])
        await crew.dismiss(last)
        sent = await app.jobs.signals(handle)
        result = await handle.result(1)
    assert len(set(result)) == NUMBERS
    numbers = [signal.payload for signal in sent]
    assert sorted(numbers) == list(range(len(numbers)))
    assert acknowledged <= set(numbers)
    assert sorted(signal.payload for signal in sent if signal.wait_key) == sorted(result)
    await check(crew.url, [handle.id], at_rest=True)
