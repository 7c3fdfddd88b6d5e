"""A worker that is stopped past its lease, or dead: others take its jobs over, and what it still does counts for nothing."""

import time

import pytest

from perdure import Handle
from tests.crash.apps import Errand, Op, make_app
from tests.crash.invariants import check
from tests.crash.processes import Crew, all_ended, until

pytestmark = pytest.mark.crash

LEASE = 1.5
TAKEOVER = LEASE + 10
"""Seconds within which a dead worker's jobs go on, whatever is configured."""


async def test_a_worker_stopped_past_its_lease_writes_nothing(crew: Crew) -> None:
    """Two workers are stopped in the middle of their jobs and go on when others have them: one notices that its leases are
    gone, the other is blind to it, so that only the database stands between it and the log."""
    held = {
        "step": [Op("step", "one"), Op("step", "held", gate="early"), Op("step", "last")],
        "tool": [Op("tool", "held", gate="early", on_unknown="retry"), Op("step", "last")],
        "return": [Op("step", "one"), Op("pause", "held", gate="early")],
        "late step": [Op("step", "held", gate="late"), Op("step", "last")],
        "late return": [Op("step", "one"), Op("pause", "held", gate="late")],
    }
    async with make_app(crew.url) as app:
        jobs: dict[tuple[str, str], Handle[object]] = {}
        for queue in ("normal", "stubborn"):
            for name, ops in held.items():
                jobs[queue, name] = await app.enqueue("errand", Errand(ops), queue=queue)
        stopped = [crew.start(queues=(q,), lease=LEASE, stubborn=q == "stubborn") for q in ("normal", "stubborn")]
        await until(
            lambda: all((1, "held") in crew.effects(job.id) for job in jobs.values()), what="the jobs to be held"
        )
        for child in stopped:
            child.stop()
        began = time.monotonic()
        crew.open("early-2")  # those are finished by others before the stopped workers go on; the late ones are not
        other = crew.start(queues=("normal", "stubborn"), lease=30, chores=None)
        await until(lambda: all((2, "held") in crew.effects(job.id) for job in jobs.values()), what="the takeover")
        assert time.monotonic() - began < TAKEOVER + 5  # five seconds for starting a process on a busy machine
        early = [job.id for (_, name), job in jobs.items() if not name.startswith("late")]
        await all_ended(app, early)
        before = await check(crew.url, [job.id for job in jobs.values()])

        crew.open("early-1")
        crew.open("late-1")
        for child in stopped:
            child.go_on()
        for write in ("record node_finished held", "record tool_returned held", "finish COMPLETED"):
            await until(lambda write=write: crew.lines("refusals").count(write) >= 2, what=f"{write} to be refused")  # type: ignore[misc]
        await until(lambda: stopped[0].log.count("lease lost") >= len(held), what="the worker to notice")
        after = await check(crew.url)
        for job in jobs.values():
            assert after.of(job.id).log() == before.of(job.id).log()

        crew.open("late-2")
        await all_ended(app, [job.id for job in jobs.values()])
        await crew.dismiss(other)
        again = [await app.enqueue("count", n, queue=q) for n, q in enumerate(("normal", "stubborn"))]
        await all_ended(app, [job.id for job in again])  # the stopped ones are none the worse for it
        await crew.dismiss(*stopped)
        snapshot = await check(crew.url, all_ended=True)
    for job in jobs.values():
        case = snapshot.of(job.id)
        assert (case.status, case.job["attempt"], case.job["retry_count"]) == ("COMPLETED", 2, 1), case.log()
