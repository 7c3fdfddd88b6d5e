"""Machines whose clocks are wrong: leases, sleeps and retries are judged by the database's time, and by no machine's clock."""

import time

import pytest

from perdure import Status
from tests.crash.apps import Errand, Op, make_app
from tests.crash.invariants import check
from tests.crash.processes import Crew, all_ended, until

pytestmark = pytest.mark.crash

HOUR = 3600.0
LEASE = 2.0


async def test_a_wrong_clock_changes_nothing(crew: Crew) -> None:
    """Three workers, one an hour ahead, one an hour behind: each keeps its own jobs for as long as it lives, takes none of
    the others', sleeps and retries in time; when they are killed, the one left takes everything over."""
    clocks = {"ahead": HOUR, "right": 0.0, "behind": -HOUR}
    timed = Errand(
        [Op("snooze", "snooze", 0.2), Op("stumble", "stumble"), Op("sleep", "nap", 0.3), Op("sleep", "night", 1)]
    )
    async with make_app(crew.url) as app:
        kept = {q: await app.enqueue("errand", Errand([Op("step", "long", gate="kept")]), queue=q) for q in clocks}
        in_time = {q: await app.enqueue("errand", timed, queue=q) for q in clocks}
        workers = {q: crew.start(queues=(q,), skew=skew, lease=LEASE) for q, skew in clocks.items()}
        await until(lambda: all((1, "long") in crew.effects(job.id) for job in kept.values()), what="the long steps")
        shown = sorted(round((float(clock) - time.time()) / HOUR) for clock in crew.lines("clocks"))
        assert shown == [-1, 0, 1], "the clocks are not as wrong as they should be"
        began = time.monotonic()
        await all_ended(app, [job.id for job in in_time.values()], patience=30)
        await until(lambda: time.monotonic() - began > 1.5 * LEASE, what="the leases to be renewed")
        crew.open("kept-1")
        await all_ended(app, [job.id for job in kept.values()])
        snapshot = await check(crew.url, at_rest=True)
        for job in kept.values():
            assert snapshot.of(job.id).job["attempt"] == 1, snapshot.of(job.id).log()
        for job in in_time.values():
            case = snapshot.of(job.id)
            assert (case.status, case.job["retry_count"]) == (Status.COMPLETED, 1), case.log()
            (begun,) = (e for e in case.events if e["type"] == "wait_started" and e["payload"]["key"] == "night")
            (done,) = (e for e in case.events if e["type"] == "wait_completed" and e["payload"]["key"] == "night")
            assert 0.9 < done["created_at"] - begun["created_at"] < 60

        lost = {q: await app.enqueue("errand", Errand([Op("step", "long", gate="lost")]), queue=q) for q in clocks}
        await until(lambda: all((1, "long") in crew.effects(job.id) for job in lost.values()), what="the last steps")
        for worker in workers.values():
            worker.kill()
        crew.open("lost-2")
        last = crew.start(queues=tuple(clocks), skew=HOUR / 2, lease=LEASE)
        await all_ended(app, patience=30)
        await crew.dismiss(last)
        snapshot = await check(crew.url, at_rest=True)
    for job in lost.values():
        case = snapshot.of(job.id)
        assert (case.status, case.job["attempt"], case.job["retry_count"]) == (Status.COMPLETED, 2, 1), case.log()
    for case in map(snapshot.of, snapshot.jobs):
        assert abs(case.now - case.events[-1]["created_at"]) < 300, "a wrong clock has got into the log"
