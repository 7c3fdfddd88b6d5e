"""kill -9 around the approval of a tool and its use: asked once, called once, and its output is there in the next attempt."""

import asyncio

import pytest

from perdure.runtime.codec import digest
from tests.crash.apps import make_app
from tests.crash.invariants import check
from tests.crash.processes import Crew

pytestmark = pytest.mark.crash

KEY = f"deploy[#tool:{digest(('1.2',), {})}]"
POINTS = (
    "after request_approval",
    f"before record wait_completed {KEY}",
    f"after record wait_completed {KEY}",
    "before record tool_called deploy",
    "during record tool_called deploy",
    "after record tool_returned deploy",
    "before record tool_called measure",
)


@pytest.mark.parametrize("kill_at", POINTS)
async def test_killed_at(crew: Crew, kill_at: str) -> None:
    async with make_app(crew.url) as app:
        await app.database.migrate()
        handle = await app.enqueue("deployer")
        first = crew.start(kill_at=kill_at)
        if kill_at != "after request_approval":
            while not (asked := (await app.approvals.list()).items):
                await asyncio.sleep(0.01)
            await app.approve(asked[0].id, by="ann")
        assert await first.ended() == -9
        second = crew.start()
        for approval in (await app.approvals.list()).items:
            await app.approve(approval.id, by="ann")
        assert await handle.result(60) == {"size": 90_000, "version": "1.2"}
        await crew.dismiss(second)
        events = await handle.events()
    assert [type for e in events if (type := e.type) == "approval_requested"] == ["approval_requested"]
    assert [name for _, name in crew.effects(handle.id)] == ["deploy"]
    [approval] = {e.payload["approval"] for e in events if e.type == "tool_called" and e.payload["key"] == "deploy"}
    assert approval == next(e.payload["approval"] for e in events if e.type == "approval_requested")
    await check(crew.url, [handle.id], at_rest=True)
