"""kill -9 between the writes of two agents that talk to each other: no message is lost, and none is sent or answered twice."""

import asyncio

import pytest

from perdure import App
from tests.crash.apps import make_app
from tests.crash.invariants import check
from tests.crash.processes import Crew, all_ended

pytestmark = pytest.mark.crash

POINTS = (
    "after claim",
    "before record message_sent critic",
    "during record message_sent critic",
    "after record message_sent critic",
    "before deliver",
    "during deliver",
    "after deliver",
    "during record node_finished judge",
    "before finish COMPLETED",
    "during finish COMPLETED",
    "after finish COMPLETED",
)


@pytest.mark.parametrize("kill_at", POINTS)
async def test_killed_at(crew: Crew, kill_at: str) -> None:
    async with make_app(crew.url) as app:
        await app.database.migrate()
        await app.agents.send("writer", "draft")
        first = crew.start(kill_at=kill_at)
        assert await first.ended() == -9
        second = crew.start()
        await answered(app)
        await all_ended(app)
        await crew.dismiss(second)
        boxes = {
            (agent, box): [(m.payload, m.state) for m in reversed((await getattr(app.agents, box)(agent)).items)]
            for agent in ("writer", "critic")
            for box in ("inbox", "outbox")
        }
        asked, said = ("draft, please", "consumed"), ("draft, please: yes", "consumed")
        assert boxes == {
            ("writer", "inbox"): [("draft", "consumed"), said],
            ("writer", "outbox"): [asked],
            ("critic", "inbox"): [asked],
            ("critic", "outbox"): [said],
        }
        jobs = (await app.jobs.list()).items
        assert sorted(str(job.goal) for job in jobs) == ["draft", "draft, please", "draft, please: yes"]
        consumers = [
            m.consumed_by_job_id for agent in ("writer", "critic") for m in (await app.agents.inbox(agent)).items
        ]
        assert sorted(map(str, consumers)) == sorted(str(job.id) for job in jobs)
    await check(crew.url, [job.id for job in jobs], at_rest=True)


async def answered(app: App) -> None:
    """Wait until the writer has the reply."""
    async with asyncio.timeout(60):
        while not any(m.reply_to and m.consumed_at for m in (await app.agents.inbox("writer")).items):
            await asyncio.sleep(0.05)
