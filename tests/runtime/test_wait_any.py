"""`ctx.wait_any`: the first of several waits counts, the others are closed, and a replay gets the same one."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from perdure import (
    App,
    ApprovalStatus,
    BlockingContext,
    Denied,
    First,
    Handle,
    InvalidInput,
    JobContext,
    JobFailed,
    OnApproval,
    OnChild,
    OnMessage,
    OnSignal,
    OnTime,
    Retry,
    SignalTimeout,
)
from perdure.testing import TestApp
from tests.conformance.support import S
from tests.runtime.support import LONG, NOW, PATIENCE, ended, pending, reached, types, until, working


async def choose(ctx: JobContext) -> Any:
    first = await ctx.wait_any(OnSignal("paid", int), OnTime("late", LONG), OnApproval("waive", title="Waive it?"))
    again = await ctx.wait_any(OnSignal("paid", int), OnTime("soon", 0.7))
    value = first.value.by if first.name == "waive" else first.value
    return [first.name, value, again.name, again.value]


async def closed(handle: Handle[Any]) -> dict[str, bool]:
    return {e.payload["key"]: "closed" in e.payload for e in await handle.events() if e.type == "wait_completed"}


async def test_a_signal_comes_first(file_app: App) -> None:
    file_app.job(choose)
    async with working(file_app):
        handle = await file_app.enqueue("choose")
        job = await reached(handle, S.WAITING_FOR_APPROVAL)
        assert sorted((w.kind, w.key) for w in job.waits) == [
            ("approval", "waive"),
            ("signal", "paid"),
            ("timer", "late"),
        ]
        approval = await pending(file_app, handle)
        await handle.signal("paid", 3)
        parked = await reached(handle, S.PARKED)
        assert sorted(w.key for w in parked.waits) == ["paid#2", "soon"]
        assert (await file_app.approvals.get(approval.id)).status is ApprovalStatus.CANCELLED
        assert await handle.result(PATIENCE) == ["paid", 3, "soon", None]
    assert await closed(handle) == {"paid": False, "late": True, "waive": True, "paid#2": True, "soon": False}
    assert [f async for f in file_app.database.fsck()] == []


async def test_an_approval_comes_first(file_app: App) -> None:
    file_app.job(choose)
    async with working(file_app):
        handle = await file_app.enqueue("choose")
        await reached(handle, S.WAITING_FOR_APPROVAL)
        await file_app.approve((await pending(file_app, handle)).id, by="ann")
        await reached(handle, S.PARKED)
        await handle.signal("paid", 5)
        assert await handle.result(PATIENCE) == ["waive", "ann", "paid", 5]
    assert [f async for f in file_app.database.fsck()] == []


async def test_of_several_that_came_the_one_given_first_counts_and_the_others_stay(file_app: App) -> None:
    @file_app.job
    async def pick(ctx: JobContext) -> Any:
        found = [await ctx.wait_any(OnSignal("b"), OnTime("now", 0), OnSignal("a"))]
        found += [await ctx.wait_any(OnSignal("a"), OnSignal("b")) for _ in range(2)]
        return [(first.name, first.value) for first in found]

    handle = await file_app.enqueue(pick)
    for key, payload in (("a", 1), ("b", 2), ("b", 3)):
        await handle.signal(key, payload)
    async with working(file_app):
        assert await handle.result(PATIENCE) == [["b", 2], ["a", 1], ["b", 3]]
    assert [f async for f in file_app.database.fsck()] == []


async def test_a_replay_gets_the_same_one(file_app: App) -> None:
    seen: list[First] = []

    @file_app.job(max_retries=3, backoff=NOW)
    async def pick(ctx: JobContext) -> Any:
        seen.append(await ctx.wait_any(OnSignal("a", int), OnSignal("b", int), OnTime("late", LONG)))
        if ctx.retry_count < 2:
            raise OSError("again")
        return await ctx.wait_signal("a", int)

    async with working(file_app):
        handle = await file_app.enqueue(pick)
        await reached(handle, S.PARKED)
        await handle.signal("b", 1)
        await until(lambda: closed(handle))
        await handle.signal("a", 2)
        assert await handle.result(PATIENCE) == 2
    assert seen == [First("b", 1)] * 3


async def test_a_denial_is_raised(file_app: App) -> None:
    @file_app.job
    async def pick(ctx: JobContext) -> str:
        try:
            await ctx.wait_any(OnSignal("a"), OnApproval("ok", title="?", on_deny="resume"))
        except Denied as denied:
            return str(denied.by)
        return "none"

    async with working(file_app):
        handle = await file_app.enqueue(pick)
        await reached(handle, S.WAITING_FOR_APPROVAL)
        await file_app.deny((await pending(file_app, handle)).id, by="bob")
        assert await handle.result(PATIENCE) == "bob"


async def test_one_that_does_not_fit_does_not_count(file_app: App) -> None:
    @file_app.job
    async def pick(ctx: JobContext) -> Any:
        return (await ctx.wait_any(OnSignal("a", int), OnSignal("b", int))).value

    handle = await file_app.enqueue(pick)
    await handle.signal("a", "one")
    async with working(file_app):
        await reached(handle, S.PARKED)
        await handle.signal("b", 2)
        assert await handle.result(PATIENCE) == 2
    assert types(await handle.events()).count("signal_refused") == 1


async def test_a_fork_keeps_what_came_first(file_app: App) -> None:
    @file_app.job
    async def pick(ctx: JobContext) -> Any:
        first = await ctx.wait_any(OnSignal("a"), OnApproval("ok", title="?"), OnTime("late", LONG))
        return await ctx.step("note", lambda: first.name)

    async with working(file_app):
        handle = await file_app.enqueue(pick)
        await reached(handle, S.WAITING_FOR_APPROVAL)
        await handle.signal("a", 1)
        assert await handle.result(PATIENCE) == "a"
        forked = await file_app.jobs.fork(handle.id, from_step="note")
        assert await forked.result(PATIENCE) == "a"


async def test_the_end_of_a_child_comes_first(file_app: App) -> None:
    @file_app.job
    async def count(ctx: JobContext, number: int) -> int:
        return number if number < 5 else await ctx.wait_signal("number", int)

    @file_app.job
    async def parent(ctx: JobContext) -> Any:
        quick, slow = await ctx.spawn(count, 3), await ctx.spawn(count, 7)
        first = await ctx.wait_any(OnChild(slow), OnSignal("stop"), OnChild(quick))
        second = await ctx.wait_any(OnChild(slow), OnSignal("stop"))
        return [first.name, first.value, second.name, str(slow.id), await ctx.wait_for(quick)]

    async with working(file_app):
        handle = await file_app.enqueue(parent)
        await until(lambda: closed(handle))
        await handle.signal("stop")
        *found, slow, again = await handle.result(PATIENCE)
        assert (found, again) == (["count", 3, "stop"], 3)
        await file_app.signal(slow, "number", 8)
        assert await file_app.jobs.result(slow, timeout=PATIENCE) == 8
    assert [f async for f in file_app.database.fsck()] == []


async def test_a_plain_handler_chooses_as_well(file_app: App) -> None:
    @file_app.job
    def pick(ctx: BlockingContext) -> str:
        return ctx.wait_any(OnSignal("a"), OnTime("now", 0)).name

    async with working(file_app):
        assert await (await file_app.enqueue(pick)).result(PATIENCE) == "now"


async def test_code_that_waits_for_one_that_was_closed(file_app: App) -> None:
    @file_app.job
    async def pick(ctx: JobContext) -> Any:
        if ctx.attempt == 1:
            await ctx.wait_any(OnTime("now", 0), OnSignal("a"))
            raise OSError("other code")
        with pytest.raises(SignalTimeout):
            await ctx.wait_signal("a")
        return ctx.attempt

    async with working(file_app):
        handle = await file_app.enqueue(pick, max_retries=1)
        await reached(handle, S.RETRY, S.RUNNING)
        await file_app.jobs.wait(handle.id, timeout=PATIENCE)
        assert await handle.result(PATIENCE) == 2


BAD: list[Callable[[], tuple[Any, ...]]] = [
    tuple,
    lambda: ("paid",),
    lambda: (OnSignal(""),),
    lambda: (OnSignal("a", asyncio.Event),),
    lambda: (OnTime("a", -1),),
    lambda: (OnApproval("a", title=" "),),
    lambda: (OnApproval("a", title="?", on_deny="no"),),  # type: ignore[arg-type]
    lambda: (OnSignal("a"),) * 101,
]


async def test_what_is_refused(file_app: App) -> None:
    @file_app.job
    async def wrong(ctx: JobContext) -> str:
        for waits in BAD:
            with pytest.raises(InvalidInput):
                await ctx.wait_any(*waits())
        return "none"

    async with working(file_app):
        job = await ended(file_app, await file_app.enqueue(wrong))
    assert (job.status, job.result, job.waits) == (S.COMPLETED, "none", ())


async def listener(ctx: JobContext) -> Any:
    first = await ctx.wait_any(OnSignal("stop", str), OnMessage("news"), OnTime("late", "1h"))
    value = [message.payload for message in first.value] if first.name == "news" else first.value
    if ctx.retry_count < 1:
        raise Retry(after=0)
    return [first.name, value]


async def test_messages_come_first() -> None:
    async with TestApp() as t:
        t.job(listener)
        await t.agents.create("ann", kind="listener")
        handle = await t.enqueue("listener", agent="ann")
        await t.run_until_idle()
        assert {w.key for w in (await handle.get()).waits} == {"stop", "news", "late"}
        await t.agents.send("ann", "no news", channel="other")
        await t.agents.send("ann", "one", channel="news")
        await t.run_until_idle(advance=True)
        assert await handle.result() == ["news", ["one"]]
        assert await closed(handle) == {"stop": True, "news": False, "late": True}
        assert {m.payload: m.consumed_by_job_id == handle.id for m in (await t.agents.inbox("ann")).items}["one"]
        assert [f async for f in t.database.fsck()] == []


async def test_a_closed_wait_for_messages_takes_none() -> None:
    async with TestApp() as t:
        t.job(listener)
        await t.agents.create("ann", kind="listener", max_parallel_jobs=2)
        handle = await t.enqueue("listener", agent="ann")
        await t.signal(handle, "stop", "enough")
        await t.agents.send("ann", "mine", channel="other", delay=60)
        await t.run_until_idle()
        assert await handle.result() == ["stop", "enough"]
        await t.agents.send("ann", "late", channel="news")
        await t.run_until_idle(advance=True)
        boxes = (await t.agents.inbox("ann")).items
        assert {m.payload for m in boxes if m.consumed_by_job_id == handle.id} == set()
        assert await closed(handle) == {"stop": False, "news": True, "late": True}
        assert [f async for f in t.database.fsck()] == []


async def test_what_came_for_a_wait_that_is_closed_goes_to_another_job(file_app: App) -> None:
    """Both are there when the handler looks: the signal is given first, and counts."""

    @file_app.job
    async def either(ctx: JobContext) -> Any:
        return (await ctx.wait_any(OnSignal("stop"), OnMessage("news", limit=1))).name

    @file_app.job
    async def other(ctx: JobContext) -> Any:
        return [m.payload for m in await ctx.receive("news", timeout="1h")]

    await file_app.agents.create("ann", kind="other", intake="inbox", max_parallel_jobs=2)
    async with working(file_app):
        handle = await file_app.enqueue(either, agent="ann")
        await reached(handle, S.PARKED)
    await file_app.agents.send("ann", "one", channel="news")
    await handle.signal("stop")
    async with working(file_app):
        assert await handle.result(PATIENCE) == "stop"
        taken = await file_app.enqueue(other, agent="ann")
        assert await taken.result(PATIENCE) == ["one"]
    assert [f async for f in file_app.database.fsck()] == []


async def test_messages_are_for_jobs_of_agents_alone() -> None:
    async with TestApp() as t:
        t.job(listener)
        handle = await t.enqueue("listener")
        await t.run_until_idle()
        with pytest.raises(JobFailed, match="not one of an agent"):
            await handle.result()

        @t.job
        async def bad(ctx: JobContext, limit: int) -> None:
            name: Any = 5
            with pytest.raises(InvalidInput, match="name must be text"):
                await ctx.wait_any(OnMessage("news", name=name))
            await ctx.wait_any(OnMessage("reply:1" if limit else None, limit))

        for limit in (0, 1):
            bad_handle = await t.enqueue(bad, limit, agent="ann")
            await t.run_until_idle()
            with pytest.raises(JobFailed, match="limit must be" if limit == 0 else "are for replies"):
                await bad_handle.result()
