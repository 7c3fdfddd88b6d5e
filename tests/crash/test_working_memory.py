"""kill -9 between the writes of a job that keeps a conversation, variables and actions: each is there once, in order."""

import pytest

from tests.crash.apps import make_app
from tests.crash.invariants import check
from tests.crash.processes import Crew, all_ended

pytestmark = pytest.mark.crash

POINTS = (
    "during record message_appended message",
    "after record message_appended message",
    "during record node_finished ask#2",
    "after record node_finished ask",
    "after record variable_set turns",
    "after record tool_returned post",
)


@pytest.mark.parametrize("kill_at", POINTS)
async def test_killed_at(crew: Crew, kill_at: str) -> None:
    async with make_app(crew.url) as app:
        await app.database.migrate()
        handle = await app.enqueue("talker")
        first = crew.start(kill_at=kill_at)
        assert await first.ended() == -9
        second = crew.start()
        await all_ended(app)
        await crew.dismiss(second)
        said = [m.message for m in await app.jobs.messages(handle.id)]
        assert await handle.result() == said
        assert [m["content"] for m in said] == ["hello", "1", "2", "thanks"]
        assert await app.jobs.variables(handle.id) == {"turns": 2}
        actions = await app.jobs.actions(handle.id)
        assert [(a.sequence, a.key, a.output) for a in actions] == [(0, "post", "1"), (1, "post#2", "2")]
    await check(crew.url, [handle.id], at_rest=True)
