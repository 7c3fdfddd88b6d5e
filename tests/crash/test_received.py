"""kill -9 between the writes of a job that asks an agent and receives a message: each is asked, bound and taken once."""

import asyncio

import pytest

from perdure import App, Job
from tests.crash.apps import make_app
from tests.crash.invariants import check
from tests.crash.processes import Crew, all_ended

pytestmark = pytest.mark.crash

POINTS = (
    "during record message_sent ask:critic",
    "after record message_sent ask:critic",
    "during record wait_completed ask:critic",
    "after record wait_completed ask:critic",
    "during record wait_started news",
    "after record wait_started news",
    "during finish PARKED",
    "after finish PARKED",
    "during record wait_completed news",
    "after record wait_completed news",
)


@pytest.mark.parametrize("kill_at", POINTS)
async def test_killed_at(crew: Crew, kill_at: str) -> None:
    async with make_app(crew.url) as app:
        await app.database.migrate()
        await app.agents.send("host", "draft")
        news = asyncio.create_task(send_news(app))
        first = crew.start(kill_at=kill_at)
        assert await first.ended() == -9
        second = crew.start()
        await news
        await all_ended(app)
        await crew.dismiss(second)
        host = await of_host(app)
        assert host.result == ["draft: yes", "news"]
        boxes = {
            agent: [
                (m.payload, m.state, m.consumed_by_job_id == host.id) for m in (await app.agents.inbox(agent)).items
            ]
            for agent in ("host", "critic")
        }
        assert sorted(boxes["host"]) == [
            ("draft", "consumed", True),
            ("draft: yes", "consumed", True),
            ("news", "consumed", True),
        ]
        assert boxes["critic"] == [("draft", "consumed", False)]
        jobs = (await app.jobs.list()).items
        assert len(jobs) == 2
    await check(crew.url, [job.id for job in jobs], at_rest=True)


async def send_news(app: App) -> None:
    """Send what the host waits for, once it waits."""
    async with asyncio.timeout(60):
        while not any(wait.key == "news" for wait in (await of_host(app)).waits):
            await asyncio.sleep(0.05)
    await app.agents.send("host", "news", channel="news")


async def of_host(app: App) -> Job:
    """The job of the host."""
    [id] = [job.id for job in (await app.jobs.list(kind="host")).items]
    return await app.jobs.get(id)
