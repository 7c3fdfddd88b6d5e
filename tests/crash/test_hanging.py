"""Handlers that hang, in real processes: what they hold is taken from them, and signals end them."""

import asyncio

import pytest

from perdure import Status
from tests.crash.apps import Errand, Op, make_app
from tests.crash.invariants import check
from tests.crash.processes import Crew, all_ended, until

pytestmark = pytest.mark.crash


async def test_a_recorded_step_does_not_begin_in_the_worker_that_was_held_up(crew: Crew) -> None:
    """The process stands still between two steps; meanwhile another worker runs and records the second one."""
    errand = Errand([Op("step", "one"), Op("block", "held", gate="gate"), Op("step", "two"), Op("thread", "three")])
    async with make_app(crew.url) as app:
        await app.database.migrate()
        held_up = crew.start()
        job = await app.enqueue("errand", errand)
        await until(lambda: (1, "held") in crew.effects(job.id), what="the first attempt")
        await held_up.stop()
        other = crew.start()
        crew.open("gate-2")
        await all_ended(app, [job.id])
        crew.open("gate-1")
        held_up.go_on()
        again = [(await app.enqueue("count", n)).id for n in range(5)]
        await crew.dismiss(other)
        await all_ended(app, again)  # by the one that was held up
        await crew.dismiss(held_up)
        snapshot = await check(crew.url, at_rest=True)
    case = snapshot.of(job.id)
    assert (case.status, case.job["attempt"]) == (Status.COMPLETED, 2), case.log()
    assert [effect for effect in crew.effects(job.id) if effect[1] != "held"] == [(1, "one"), (2, "two"), (2, "three")]


async def test_a_job_that_ends_its_process_takes_no_other_along(crew: Crew) -> None:
    """Two processes, replaced when they end; 20 jobs without any retry survive one that kills each of them."""
    async with make_app(crew.url) as app:
        await app.database.migrate()
        innocent = [(await app.enqueue("innocent")).id for _ in range(10)]
        bad = (await app.enqueue("poison")).id
        innocent += [(await app.enqueue("innocent")).id for _ in range(10)]
        workers = [crew.start(lease=1.5, concurrency=30) for _ in range(2)]
        finished = asyncio.create_task(all_ended(app, [bad, *innocent], patience=150))
        while not finished.done():
            for n, worker in enumerate(workers):
                if worker.exit_code is not None:
                    assert worker.exit_code == 3, worker.log
                    workers[n] = crew.start(lease=1.5, concurrency=30)
            await asyncio.wait({finished}, timeout=0.1)
        await finished
        await crew.dismiss(*workers)
        snapshot = await check(crew.url, at_rest=True)
    for id in innocent:
        case = snapshot.of(id)
        assert (case.status, case.job["retry_count"]) == (Status.COMPLETED, 0), case.log()
    case = snapshot.of(bad)
    assert (case.status, case.job["error_kind"], case.job["retry_count"]) == (Status.DEADLETTER, "lease_lost", 1), (
        case.log()
    )


async def test_a_blocked_event_loop_costs_no_lease_and_is_named(crew: Crew) -> None:
    """For more than two leases nothing else runs in the worker; another one would take its jobs over."""
    async with make_app(crew.url) as app:
        await app.database.migrate()
        blocked = crew.start(lease=3)
        waits = await app.enqueue("errand", Errand([Op("step", "waits", gate="waits")]))
        await until(lambda: (1, "waits") in crew.effects(waits.id), what="the other job")
        blocks = await app.enqueue("errand", Errand([Op("block", "blocks", gate="blocks"), Op("step", "last")]))
        await until(lambda: (1, "blocks") in crew.effects(blocks.id), what="the blocking job")
        other = crew.start(lease=3)
        await crew.ready(other)
        await asyncio.sleep(8)
        for job in (waits, blocks):
            assert ((found := await job.get()).attempt, found.status) == (1, Status.RUNNING)
        crew.open("blocks-1")
        crew.open("waits-1")
        await all_ended(app, [waits.id, blocks.id])
        await crew.dismiss(blocked, other)
        snapshot = await check(crew.url, at_rest=True)
    for job in (waits, blocks):
        case = snapshot.of(job.id)
        assert (case.status, case.job["attempt"]) == (Status.COMPLETED, 1), case.log()
    [line] = [line for line in blocked.log.splitlines() if "the event loop of this worker is blocked" in line]
    assert str(blocks.id) in line
    assert "in _block" in line, "its stack"
    assert "the event loop runs again" in blocked.log


async def test_a_blocked_worker_that_is_stopped_loses_its_leases(crew: Crew) -> None:
    """What renews them is in the process, and stops with it."""
    async with make_app(crew.url) as app:
        await app.database.migrate()
        blocked = crew.start(lease=3)
        job = await app.enqueue("errand", Errand([Op("block", "blocks", gate="blocks"), Op("step", "last")]))
        await until(lambda: (1, "blocks") in crew.effects(job.id), what="the blocking job")
        await asyncio.sleep(4)
        await blocked.stop()
        crew.open("blocks-2")
        other = crew.start(lease=3)
        await all_ended(app, [job.id])
        crew.open("blocks-1")
        blocked.go_on()
        await crew.dismiss(blocked, other)
        snapshot = await check(crew.url, at_rest=True)
    case = snapshot.of(job.id)
    assert (case.status, case.job["attempt"]) == (Status.COMPLETED, 2), case.log()
    assert (1, "last") not in crew.effects(job.id)
