"""kill -9 at every point between, during and after the writes of a job: a fresh worker finishes it, as if nothing had been.

For each store all points are run at once, each on a job, a queue and a process of its own; then each is looked at.
"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from perdure import Approval
from perdure.runtime.context.options import OnUnknown
from tests.crash.apps import Errand, Op, make_app, result_of
from tests.crash.invariants import Snapshot, check
from tests.crash.processes import Crew, ForkServers, all_ended, answering
from tests.postgres_server import PostgresServer, run_apart

pytestmark = pytest.mark.crash

AT_ONCE = {"sqlite": 12, "postgres": 8}
"""Processes that run at the same time: PostgreSQL has to give each of them its connections."""

WRITES = (
    "claim",
    "record node_finished one",
    "record node_finished two",
    "record checkpoint_saved",
    "record usage_recorded usage",
    "record tool_called post",
    "record tool_returned post",
    "record wait_started nap",
    "set_waiting on",
    "set_waiting off",
    "record wait_completed nap",
    "record wait_started night",
    "finish PARKED",
    "record wait_completed night",
    "request_approval",
    "record approval_notified ok",
    "finish WAITING_FOR_APPROVAL",
    "record wait_completed ok",
    "record node_finished last",
    "finish COMPLETED",
)


def journey(on_unknown: OnUnknown) -> Errand:
    """A job that makes every kind of write."""
    return Errand(
        [
            Op("step", "one"),
            Op("thread", "two"),
            Op("checkpoint", "three"),
            Op("usage", "four"),
            Op("tool", "post", on_unknown=on_unknown),
            Op("sleep", "nap", 0.4),  # sat out under the lease
            Op("sleep", "night", 1.2),  # parked
            Op("approve", "ok"),
            Op("step", "last"),
        ]
    )


@dataclass(frozen=True)
class Point:
    """Where the processes that serve a job are killed, one after the other, and what is done about an unknown outcome."""

    kills: tuple[str, ...]
    on_unknown: OnUnknown = "ask"
    answer: str = "happened"
    says: str = ""

    def __str__(self) -> str:
        return " then ".join(self.kills) + (f" ({self.says})" if self.says else "")


POINTS = (
    *(Point((f"{when} {write}",)) for write in WRITES for when in ("during", "after")),
    Point(("before claim",)),
    Point(("before one",)),
    Point(("inside one",)),
    Point(("after one",)),
    Point(("inside two",)),
    Point(("inside post",), says="asked: it happened"),
    Point(("inside post",), answer="retry", says="asked: again"),
    Point(("inside post",), on_unknown="retry", says="retried"),
    Point(("inside post",), on_unknown="fail", says="failed"),
    Point(("inside post", "inside post", "inside post"), answer="retry", says="asked: again and again"),
    Point(("inside post", "after request_approval"), says="killed while asking"),
    Point(("inside post", "after record wait_completed post?1"), answer="retry", says="killed when answered"),
    Point(("before finish PARKED",)),
    Point(("inside notify ok",)),
    Point(("before record approval_notified ok",)),
    Point(("after request_approval", "after replace_token"), says="two tokens lost"),
    Point(("before finish WAITING_FOR_APPROVAL",)),
    Point(("before return",)),
    Point(("before finish COMPLETED",)),
)


@dataclass
class Wreckage:
    """What was left when all points had been run and fresh workers had finished everything."""

    crew: Crew
    jobs: dict[Point, UUID] = field(default_factory=dict)
    exits: dict[Point, list[int]] = field(default_factory=dict)
    snapshot: Snapshot | None = None

    async def run(self) -> None:
        answers: dict[UUID, str] = {}

        def answer(asked: Approval) -> dict[str, Any]:
            return {"outcome": answers[asked.job_id], "result": "post"}

        async with make_app(self.crew.url) as app:
            await app.enqueue("count", 0, delay="1h")  # it has to stay as it is
            for number, point in enumerate(POINTS):
                job = await app.enqueue("errand", journey(point.on_unknown), queue=f"q{number}")
                self.jobs[point], answers[job.id] = job.id, point.answer
            async with answering(app, self.crew.place, answer):
                places = asyncio.Semaphore(AT_ONCE["sqlite" if self.crew.url.startswith("sqlite") else "postgres"])
                await asyncio.gather(*(self._kill(places, n, point) for n, point in enumerate(POINTS)))
                fresh = [self.crew.start(queues=tuple(f"q{n}" for n in range(len(POINTS)))) for _ in range(2)]
                await all_ended(app, self.jobs.values())
                await self.crew.dismiss(*fresh)
        self.snapshot = await check(self.crew.url, self.jobs.values(), at_rest=True)

    async def _kill(self, places: asyncio.Semaphore, number: int, point: Point) -> None:
        async with places:
            for kill in point.kills:
                child = self.crew.start(queues=(f"q{number}",), kill_at=kill)
                try:
                    self.exits.setdefault(point, []).append(await child.ended())
                finally:
                    child.kill()


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def wreckage(
    request: pytest.FixtureRequest, servers: ForkServers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Wreckage]:
    """All points, run once for each store."""
    place: Path = tmp_path_factory.mktemp(f"points-{request.param}")
    with ExitStack() as stack:
        url = f"sqlite:///{place}/perdure.db"
        if request.param == "postgres":
            postgres: PostgresServer = request.getfixturevalue("postgres")
            name = f"perdure_test_{os.getpid()}_points"
            url = postgres.create_database(name, template=request.getfixturevalue("postgres_template"))
            stack.callback(postgres.drop_database, name)
        found = Wreckage(stack.enter_context(Crew(servers, url, place)))
        run_apart(found.run())
        yield found


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_killed_at(wreckage: Wreckage, point: Point) -> None:
    """The job ends as it would have, what was recorded has not run again, and the crash cost at most one retry each."""
    assert wreckage.snapshot is not None
    assert wreckage.exits[point] == [-9] * len(point.kills)
    case = wreckage.snapshot.of(wreckage.jobs[point])
    effects = wreckage.crew.effects(case.id)
    if point.on_unknown == "fail":
        assert (case.status, case.job["error_kind"]) == ("FAILED", "unknown_outcome"), case.log()
        assert [name for _, name in effects] == ["one", "two", "post"]
        return
    assert case.status == "COMPLETED", case.log()
    assert case.job["result"] == result_of(journey(point.on_unknown))
    assert {e["payload"]["reason"] for e in case.events if e["type"] == "job_retrying"} <= {"lease_expired"}
    assert set(case.keys("node_finished", "tool_returned")) == {"one", "two", "post", "last"}
    for type, key in (
        ("node_finished", "one"),
        ("node_finished", "two"),
        ("tool_returned", "post"),
        ("node_finished", "last"),
    ):
        recorded = case.first(type, key)
        tries = [attempt for attempt, name in effects if name == key]
        assert max(tries, default=0) <= recorded["attempt"], f"'{key}' ran again after it was recorded"
        assert len(tries) == len(set(tries)), f"'{key}' ran twice in one attempt"
    calls = len(case.keys("tool_called"))
    unknown = sum(kill in _IN_THE_TOOL for kill in point.kills)
    assert calls <= 1 + (0 if point.answer == "happened" and point.on_unknown == "ask" else unknown)
    if point.kills == ("inside post",) * unknown:
        assert len([name for _, name in effects if name == "post"]) == calls


_IN_THE_TOOL = ("inside post", "during record tool_called post", "after record tool_called post")


def test_a_job_that_is_not_due_stays_as_it_is(wreckage: Wreckage) -> None:
    assert wreckage.snapshot is not None
    others = [job for id, job in wreckage.snapshot.jobs.items() if id not in wreckage.jobs.values()]
    assert [job["status"] for job in others] == ["PENDING"]
