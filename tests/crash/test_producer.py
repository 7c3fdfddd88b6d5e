"""A producer that is killed while it enqueues: what it reported as acknowledged is there."""

import asyncio
import random
from collections import Counter
from uuid import UUID

import pytest

from tests.crash.apps import TOGETHER
from tests.crash.invariants import check
from tests.crash.processes import Crew, until

pytestmark = pytest.mark.crash

KILLS = 5


async def test_acknowledged_jobs_are_there(crew: Crew) -> None:
    for _ in range(KILLS):
        before = len(crew.lines("acknowledged"))
        producer = crew.start(role="producer")
        await until(lambda before=before: len(crew.lines("acknowledged")) > before + 20, what="some jobs")  # type: ignore[misc]
        await asyncio.sleep(random.uniform(0, 0.1))
        producer.kill()
    acknowledged = {UUID(line) for line in crew.lines("acknowledged") if len(line) == 36}
    snapshot = await check(crew.url, acknowledged)
    assert len(snapshot.jobs) >= len(acknowledged) >= KILLS * 20
    batches = Counter(job["goal"] for job in snapshot.jobs.values() if job["goal"])
    assert set(batches.values()) == {TOGETHER}, "enqueue_many stores all or none"
