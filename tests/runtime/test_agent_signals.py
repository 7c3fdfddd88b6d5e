"""Signals to agents, as handlers see them: in ctx.signals, the same in every attempt, and by ctx.wait_signal."""

from typing import Any

import pytest

import perdure.sync
from perdure import (
    AgentNotFound,
    AgentPaused,
    BlockingContext,
    InvalidInput,
    JobContext,
    JobFailed,
    Message,
    OnSignal,
    OnTime,
    Retry,
    SignalConflict,
    SignalTimeout,
    Status,
)
from perdure.testing import TestApp, replay
from perdure.testing.recording import recordings_of


async def test_every_attempt_has_the_same_signals() -> None:
    async with TestApp() as t:
        seen: list[list[Any]] = []

        @t.job
        async def work(ctx: JobContext) -> Any:
            seen.append([(signal.key, signal.payload) for signal in ctx.signals])
            if ctx.attempt < 3:
                raise Retry(after=0)
            return await ctx.wait_signal("b")

        await t.agents.create("ann", kind="work")
        await t.agents.signal("ann", "a", {"key": "x", "n": 1})
        await t.agents.signal("ann", "b", "two")
        handle = await t.enqueue(work, agent="ann")
        await t.run_until_idle(advance=True)
        await t.agents.signal("ann", "c")
        assert await handle.result() == "two"
        assert seen == [[("a", {"key": "x", "n": 1}), ("b", "two")]] * 3
        assert [s.state for s in (await t.agents.signals("ann")).items] == ["pending", "consumed", "consumed"]
        assert [fault async for fault in t.database.fsck()] == []


async def test_signals_to_the_job_itself_that_came_before_it_began() -> None:
    async with TestApp() as t:

        @t.job
        async def work(ctx: JobContext) -> Any:
            known = [signal.payload for signal in ctx.signals]
            return [known, await ctx.wait_signal("a")]

        handle = await t.enqueue(work)
        await t.signal(handle, "a", 1)
        await t.run_until_idle()
        assert await handle.result() == [[1], 1]
        plain = await t.enqueue(work)
        await t.run_until_idle()
        await t.signal(plain, "a", 2)
        await t.run_until_idle()
        assert await plain.result() == [[], 2]


async def test_a_parked_job_is_woken_and_one_that_begins_to_wait_finds_it() -> None:
    async with TestApp() as t:

        @t.job
        async def work(ctx: JobContext) -> Any:
            first = await ctx.wait_signal("a", int)
            await t.agents.signal("ann", "b", first + 1)
            return [first, await ctx.wait_signal("b", int)]

        await t.agents.create("ann", kind="work")
        handle = await t.enqueue(work, agent="ann")
        await t.run_until_idle()
        assert (await handle.get()).status is Status.PARKED
        sent = await t.agents.signal("ann", "a", "no number")
        assert (sent.state, sent.consumed_by_job_id) == ("consumed", handle.id)
        await t.run_until_idle()
        await t.agents.signal("ann", "a", 1)
        await t.run_until_idle()
        assert await handle.result() == [1, 2]


async def test_a_plain_handler_and_the_first_of_several_waits() -> None:
    async with TestApp() as t:

        @t.job
        def plain(ctx: BlockingContext) -> Any:
            return [signal.key for signal in ctx.signals]

        @t.job
        async def either(ctx: JobContext) -> Any:
            first = await ctx.wait_any(OnSignal("a"), OnTime("late", "1h"))
            return [first.name, first.value]

        await t.agents.create("ann", kind="plain", max_parallel_jobs=9)
        await t.agents.signal("ann", "k")
        handle = await t.enqueue(plain, agent="ann")
        await t.run_until_idle()
        assert await handle.result() == ["k"]
        other = await t.enqueue(either, agent="ann")
        await t.run_until_idle()
        await t.agents.signal("ann", "a", 3)
        await t.run_until_idle()
        assert await other.result() == ["a", 3]


async def test_a_timeout_leaves_a_later_one_pending() -> None:
    async with TestApp() as t:

        @t.job
        async def work(ctx: JobContext) -> str:
            try:
                await ctx.wait_signal("a", timeout=1)
            except SignalTimeout:
                return "late"
            return "in time"

        await t.agents.create("ann", kind="work")
        handle = await t.enqueue(work, agent="ann")
        await t.run_until_idle(advance=True)
        assert await handle.result() == "late"
        assert (await t.agents.signal("ann", "a")).state == "pending"


async def test_an_agent_that_a_handler_is_for_is_created_by_its_first_signal() -> None:
    async with TestApp() as t:

        @t.agent("ann")
        async def serve(ctx: JobContext, _: Message) -> list[str]:
            return [signal.key for signal in ctx.signals]

        await t.agents.signal("ann", "k", id="1")
        handle = await t.agents.message("ann", "hello")
        await t.run_until_idle()
        assert await handle.result() == ["k"]


async def test_bad_input() -> None:
    async with TestApp() as t:
        with pytest.raises(AgentNotFound):
            await t.agents.signal("ann", "k")
        with pytest.raises(AgentNotFound):
            await t.agents.signals("ann")
        await t.agents.create("ann")
        await t.agents.signal("ann", "k", 1, id="1")
        with pytest.raises(SignalConflict):
            await t.agents.signal("ann", "k", 2, id="1")
        for bad in ({"key": ""}, {"key": "k", "expires_in": -1}, {"key": "k", "id": ""}, {"key": "k" * 201}):
            with pytest.raises(InvalidInput):
                await t.agents.signal("ann", **bad)
        with pytest.raises(InvalidInput):
            await t.agents.signals("ann", limit=0)
        await t.agents.pause("ann")
        with pytest.raises(AgentPaused):
            await t.agents.signal("ann", "k")
        assert len((await t.agents.signals("ann")).items) == 1


def test_the_blocking_client(tmp_path: Any) -> None:
    with perdure.sync.Client(f"sqlite:///{tmp_path}/jobs.db") as client:
        client.database.migrate()
        client.agents.create("ann")
        sent = client.agents.signal("ann", "k", [1], expires_in="1h")
        assert client.agents.signals("ann", pending=True).items == (sent,)


async def test_an_offline_replay_has_them() -> None:
    async with TestApp() as t:

        @t.job
        async def work(ctx: JobContext) -> Any:
            return await ctx.step("sum", sum, [signal.payload for signal in ctx.signals])

        await t.agents.create("ann", kind="work")
        for n in (1, 2):
            await t.agents.signal("ann", "n", n)
        handle = await t.enqueue(work, agent="ann")
        await t.run_until_idle()
        assert await handle.result() == 3
        records = [record async for record in t.jobs.export(handle.id)]
        [recording] = recordings_of(records, "it")
        done = await replay(t, recording)
        assert (done.status, done.result) == ("COMPLETED", 3)


async def test_a_handler_takes_all_that_are_pending_once() -> None:
    async with TestApp() as t:
        seen: list[list[Any]] = []

        @t.job
        async def work(ctx: JobContext) -> Any:
            first = await ctx.receive_signals()
            await t.agents.signal("ann", "b", "late", id="b")
            second = await ctx.receive_signals()
            seen.append([(signal.key, signal.payload) for signal in first + second])
            if ctx.attempt < 3:
                raise Retry(after=0)
            try:
                await ctx.wait_signal("a", timeout=1)
            except SignalTimeout:
                return len(ctx.signals)

        await t.agents.create("ann", kind="work")
        await t.agents.signal("ann", "a", {"key": "x", "n": 1})
        handle = await t.enqueue(work, agent="ann")
        await t.signal(handle, "mine", None)
        await t.run_until_idle(advance=True)
        assert await handle.result() == 2
        assert seen == [[("a", {"key": "x", "n": 1}), ("mine", None), ("b", "late")]] * 4
        assert [s.state for s in (await t.agents.signals("ann")).items] == ["consumed", "consumed"]
        assert [fault async for fault in t.database.fsck()] == []


async def test_more_than_one_event_can_hold() -> None:
    async with TestApp() as t:

        @t.job
        def work(ctx: BlockingContext) -> list[int]:
            sizes = [len(signal.payload) for signal in ctx.receive_signals()]
            if ctx.attempt == 1:
                raise Retry(after=0)
            return [*sizes, len(ctx.receive_signals())]

        await t.agents.create("ann", kind="work")
        for n in range(3):
            await t.agents.signal("ann", "k", "x" * (600_000 + n))
        handle = await t.enqueue(work, agent="ann")
        await t.run_until_idle(advance=True)
        assert await handle.result() == [600_000, 600_001, 600_002, 0]


async def test_a_job_without_an_agent_takes_its_own_and_a_change_of_the_code_is_noticed() -> None:
    async with TestApp() as t:
        calls = []

        @t.job(on_change="fail", max_retries=1)
        async def work(ctx: JobContext) -> Any:
            calls.append(1)
            if len(calls) == 1:
                taken = await ctx.receive_signals()
                raise Retry(f"{[signal.payload for signal in taken]}", after=0)
            return await ctx.step("receive_signals", str, 1)

        handle = await t.enqueue(work)
        await t.signal(handle, "mine", 7)
        await t.run_until_idle(advance=True)
        with pytest.raises(JobFailed, match="was recorded as signals that were taken and is called as a step now"):
            await handle.result()
        assert any("[7]" in str(event.payload) for event in await t.jobs.events(handle.id))


async def test_a_crash_after_each_event_takes_them_once() -> None:
    async with TestApp() as t:

        @t.job(max_retries=100)
        async def work(ctx: JobContext) -> Any:
            first = await ctx.receive_signals()
            await ctx.step("one", str, len(await ctx.receive_signals()))
            return [signal.key for signal in first]

        report = await t.crash_after_each_step(work)
        assert "signals_taken" in {boundary.type for boundary in report.boundaries}


async def test_an_offline_replay_gets_what_was_taken() -> None:
    async with TestApp() as t:

        @t.job
        async def work(ctx: JobContext) -> Any:
            return [signal.payload for signal in await ctx.receive_signals()]

        await t.agents.create("ann", kind="work")
        await t.agents.signal("ann", "n", 1)
        handle = await t.enqueue(work, agent="ann")
        await t.run_until_idle()
        [recording] = recordings_of([record async for record in t.jobs.export(handle.id)], "it")
        done = await replay(t, recording)
        assert (done.status, done.result) == ("COMPLETED", [1])
