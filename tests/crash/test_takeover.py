"""A worker that is stopped past its lease, or dead: others take its jobs over, and what it still does counts for nothing."""

import time
from collections.abc import Iterable
from uuid import UUID

import pytest

from perdure import App
from tests.crash.apps import Errand, Op, make_app
from tests.crash.invariants import Case, Row, check
from tests.crash.processes import Child, Crew, all_ended, until

pytestmark = pytest.mark.crash

LEASE = 2.0
TAKEOVER = LEASE + 10
"""Seconds within which a dead worker's jobs go on, whatever is configured."""

ERRANDS = {
    "step": [Op("step", "one"), Op("step", "held", gate="early"), Op("step", "last")],
    "tool": [Op("tool", "held", gate="early", on_unknown="retry"), Op("step", "last")],
    "return": [Op("step", "one"), Op("pause", "held", gate="early")],
    "late step": [Op("step", "held", gate="late"), Op("step", "last")],
    "late return": [Op("step", "one"), Op("pause", "held", gate="late")],
}
STALE_WRITES = ["finish COMPLETED"] * 2 + ["record node_finished held"] * 2 + ["record tool_returned held"]
"""What a worker writes that goes on with these and does not know that it must not."""


async def test_a_worker_stopped_past_its_lease_writes_nothing(crew: Crew) -> None:
    """Two workers are stopped in the middle of their jobs and go on when others have them, or have finished them. One
    notices that its leases are gone; the other is blind to it, so that only the database stands between it and the log."""
    async with make_app(crew.url) as app:
        jobs: dict[tuple[str, str], UUID] = {}
        for queue in ("normal", "stubborn"):
            for name, ops in ERRANDS.items():
                jobs[queue, name] = (await app.enqueue("errand", Errand(ops), queue=queue)).id
        early = [id for (_, name), id in jobs.items() if not name.startswith("late")]
        normal, stubborn = (
            crew.start(queues=(q,), lease=LEASE, stubborn=q == "stubborn") for q in ("normal", "stubborn")
        )
        await held(crew, jobs.values(), attempt=1)
        await announced(app, (id for (_, name), id in jobs.items() if name.endswith("step")))
        await normal.stop()
        await stubborn.stop()

        began = time.monotonic()
        crew.open("early-2")
        other = crew.start(queues=("normal", "stubborn"), lease=30, chores=None)
        await held(crew, jobs.values(), attempt=2)
        assert time.monotonic() - began < TAKEOVER + 5  # five seconds for starting a process on a busy machine
        await all_ended(app, early)
        before = await check(crew.url, jobs.values())

        crew.open("early-1")
        crew.open("late-1")
        normal.go_on()
        stubborn.go_on()
        await until(lambda: len(refused(crew, stubborn)) == len(STALE_WRITES), what="the writes to be refused")
        assert refused(crew, stubborn) == STALE_WRITES
        await until(lambda: normal.log.count("lease") >= len(ERRANDS), what="the worker to notice")
        after = await check(crew.url)
        for id in jobs.values():
            assert untouched(after.of(id)) == untouched(before.of(id)), "the stale workers have written something"

        crew.open("late-2")
        await all_ended(app, jobs.values())
        await crew.dismiss(other)
        again = [(await app.enqueue("count", 1, queue=queue)).id for queue in ("normal", "stubborn")]
        await all_ended(app, again)  # those who were stopped are none the worse for it
        await crew.dismiss(normal, stubborn)
        snapshot = await check(crew.url, at_rest=True)
    for id in jobs.values():
        case = snapshot.of(id)
        assert (case.status, case.job["attempt"], case.job["retry_count"]) == ("COMPLETED", 2, 0), case.log()


async def held(crew: Crew, ids: Iterable[UUID], *, attempt: int) -> None:
    """Wait until this attempt of these jobs is at its gate."""
    wanted = set(ids)
    await until(
        lambda: all((attempt, "held") in crew.effects(id) for id in wanted), what=f"attempt {attempt} to be at its gate"
    )


async def announced(app: App, ids: Iterable[UUID]) -> None:
    """Wait until it is written that the steps have begun: nothing but their ends is left to be written."""
    for id in ids:
        async for event in app.jobs.watch(id):
            if event.type == "node_started":
                break


def refused(crew: Crew, child: Child) -> list[str]:
    """The writes of this process that the store refused."""
    return sorted(line.split(" ", 1)[1] for line in crew.lines("refusals") if line.startswith(f"{child.pid} "))


def untouched(case: Case) -> tuple[Row, list[Row], list[Row]]:
    """What only its new holder may change: the row, the log of the lost attempt, the attempts that ended."""
    return case.job, [event for event in case.events if event["attempt"] != 2], case.runs
