"""kill -9 around the record of a failure that the handler goes on from: what is recorded is not called again."""

import asyncio
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from perdure import Approval, Status
from tests.crash.apps import Errand, Op, make_app
from tests.crash.invariants import check
from tests.crash.processes import Crew, all_ended, answering

pytestmark = pytest.mark.crash


@dataclass(frozen=True)
class Point:
    """Where the first process is killed, what its tool raises, what is answered if a question is asked, and how often
    the tool may have been called."""

    kill_at: str
    raises: Literal["refused", "lost"]
    calls: tuple[int, ...]
    answer: str = "happened"


POINTS = (
    Point("inside charge", "refused", (1,)),
    Point("inside charge", "refused", (2,), "retry"),
    Point("after record tool_failed charge", "refused", (2,)),
    Point("before record failure_caught charge", "refused", (2,)),
    Point("during record failure_caught charge", "refused", (1, 2)),
    Point("after record failure_caught charge", "refused", (1,)),
    Point("before record failure_caught charge", "lost", (1,)),
    Point("before record failure_caught charge", "lost", (2,), "retry"),
    Point("after record failure_caught charge", "lost", (1,), "retry"),
    Point("after finish PARKED", "lost", (1,), "retry"),
)


async def test_a_recorded_failure_is_not_caused_again(crew: Crew) -> None:
    """A failure that says that nothing happened may be caused again as long as it is not recorded; one that does not say so is
    asked about."""
    async with make_app(crew.url) as app:
        await app.database.migrate()
        jobs, answers = [], {}
        for number, point in enumerate(POINTS):
            ops = [
                Op("refused" if point.raises == "refused" else "lost", "charge"),
                Op("step", "one"),
                Op("sleep", "nap", 1.2),
            ]
            job = await app.enqueue("errand", Errand([*ops, Op("step", "last")]), queue=f"q{number}")
            jobs.append(job.id)
            answers[job.id] = point.answer

        def answer(asked: Approval) -> dict[str, Any]:
            return {"outcome": answers[asked.job_id], "result": "charge"}

        killed = [crew.start(queues=(f"q{n}",), kill_at=point.kill_at) for n, point in enumerate(POINTS)]
        assert await asyncio.gather(*(child.ended() for child in killed)) == [-9] * len(POINTS)
        async with answering(app, crew.place, answer):
            fresh = crew.start(queues=tuple(f"q{n}" for n in range(len(POINTS))))
            await all_ended(app, jobs)
        await crew.dismiss(fresh)
    snapshot = await check(crew.url, jobs, at_rest=True)
    for point, id in zip(POINTS, jobs, strict=True):
        case = snapshot.of(id)
        assert case.status is Status.COMPLETED, case.log()
        assert case.job["result"] == ["charge", "one", None, "last"]
        calls = [name for _, name in crew.effects(id)].count("charge")
        assert calls in point.calls, f"{point}\n{case.log()}"
        assert len(case.keys("tool_called")) == calls
        asked = point.kill_at == "inside charge" or (point.raises == "lost" and point.kill_at.startswith("before"))
        assert bool(case.approvals) == asked, f"{point}\n{case.log()}"
