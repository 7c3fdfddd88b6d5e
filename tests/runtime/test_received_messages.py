"""ctx.receive and ctx.ask: a job takes messages of its agent once, and gets replies, without a worker while it waits."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from perdure import (
    AgentNotFound,
    AgentPaused,
    App,
    BlockingContext,
    InvalidInput,
    JobContext,
    Message,
    ReplyTimeout,
    Retry,
    Status,
)
from perdure.testing import TestApp
from tests.runtime.support import PATIENCE, reached, types, until, working


@dataclass
class Verdict:
    good: bool


def said(messages: list[Message]) -> list[Any]:
    return [message.payload for message in messages]


async def states(t: App, agent: str) -> list[tuple[Any, str]]:
    """What the messages to an agent say, and their states, oldest first."""
    return [(m.payload, m.state) for m in reversed((await t.agents.inbox(agent)).items)]


async def test_a_waiting_job_is_woken_by_a_message_and_takes_it_once() -> None:
    async with TestApp() as t:

        @t.job
        async def talk(ctx: JobContext) -> list[Any]:
            first = said(await ctx.receive("news"))
            second = said(await ctx.receive("news", timeout="1h"))
            if ctx.attempt < 4:
                raise Retry(after=0)
            return [first, second]

        await t.agents.create("ann", kind="talk")
        handle = await t.enqueue(talk, agent="ann")
        await t.run_until_idle()
        assert (await handle.get()).status is Status.PARKED
        await t.agents.send("ann", "one", channel="news")
        await t.run_until_idle()
        await t.agents.send("ann", "two", channel="news")
        await t.run_until_idle(advance=True)
        assert await handle.result() == [["one"], ["two"]]
        log = await t.jobs.events(handle.id)
        [taken, _] = [event.payload for event in log if event.type == "agent_message"]
        messages = (await t.agents.inbox("ann")).items
        assert taken == {"key": "news", "message": str(messages[-1].id), "from": None, "channel": "news"}
        assert {message.consumed_by_job_id for message in messages} == {handle.id}
        assert types(log)[2:6] == ["wait_started", "job_parked", "agent_message", "run_started"]
        assert len((await t.jobs.list()).items) == 1


async def test_what_is_there_is_taken_at_once_in_order_up_to_the_limit() -> None:
    async with TestApp() as t:

        @t.job
        def talk(ctx: BlockingContext) -> list[Any]:
            taken = [said(ctx.receive(limit=2, timeout=0)), said(ctx.receive("b", timeout=0))]
            return [*taken, said(ctx.receive(timeout=0)), said(ctx.receive(timeout=0))]

        await t.agents.create("ann", kind="talk", intake="inbox")
        handle = await t.enqueue(talk, agent="ann", delay="1h")
        for text, channel in (("1", "a"), ("2", "b"), ("3", "a"), ("4", "b"), ("5", "a")):
            await t.agents.send("ann", text, channel=channel)
        assert len((await t.jobs.list()).items) == 1
        await t.run_until_idle(advance="2h")
        assert await handle.result() == [["1", "2"], ["4"], ["3", "5"], []]


async def test_a_wait_whose_time_comes_gives_nothing_back_and_keeps_no_message() -> None:
    async with TestApp() as t:
        taken: list[Any] = []

        @t.job
        async def talk(ctx: JobContext) -> list[Any]:
            if ctx.agent_messages:
                taken.append(said(list(ctx.agent_messages)))
                return []
            first = said(await ctx.receive("news", timeout="1h"))
            await ctx.sleep("pause", "2h")
            return first

        await t.agents.create("ann", kind="talk")
        handle = await t.enqueue(talk, agent="ann")
        await t.run_until_idle(advance="90m")
        await t.agents.send("ann", "late", channel="news")
        await t.run_until_idle(advance=True)
        assert await handle.result() == []
        assert taken == [["late"]]


async def test_a_message_of_a_session_goes_to_a_job_of_it() -> None:
    async with TestApp() as t:

        @t.job
        async def talk(ctx: JobContext) -> list[Any]:
            return said(await ctx.receive("news"))

        await t.agents.create("ann", kind="talk", max_parallel_jobs=3)
        jobs = {name: await t.enqueue(talk, agent="ann", session=name) for name in ("x", "y", "z")}
        await t.run_until_idle()
        for name in ("z", "y"):
            await t.agents.send("ann", name, channel="news", session=name)
        await t.agents.send("ann", "any", channel="news")
        await t.run_until_idle()
        assert {name: await job.result() for name, job in jobs.items()} == {"x": ["any"], "y": ["y"], "z": ["z"]}


async def test_a_paused_agent_receives_when_it_is_resumed() -> None:
    async with TestApp() as t:

        @t.job
        async def talk(ctx: JobContext) -> list[Any]:
            return said(await ctx.receive())

        await t.agents.create("ann", kind="talk")
        handle = await t.enqueue(talk, agent="ann")
        await t.run_until_idle()
        await t.agents.send("ann", "soon", delay="1h")
        await t.agents.pause("ann")
        await t.run_until_idle(advance="2h")
        assert (await handle.get()).status is Status.PARKED
        await t.agents.resume("ann")
        await t.run_until_idle()
        assert await handle.result() == ["soon"]


async def test_an_agent_is_asked_and_replies() -> None:
    async with TestApp() as t:
        asked: list[str] = []

        @t.agent("critic").on_message(str)
        async def judge(ctx: JobContext, text: str) -> Verdict:
            asked.append(text)
            return Verdict(len(text) > 3)

        @t.job
        async def write(ctx: JobContext) -> list[Any]:
            first = await ctx.ask("critic", "draft", Verdict, timeout="1h")
            assert first == Verdict(True)
            second = await ctx.ask("critic", "no")
            if ctx.retry_count == 0:
                raise Retry(after=0)
            return [first.good, second]

        await t.agents.create("writer", kind="write")
        for agent in ("writer", None):
            asked.clear()
            handle = await (t.enqueue(write, agent=agent) if agent else t.enqueue(write))
            await t.run_until_idle(advance=True)
            assert await handle.result() == [True, {"good": False}]
            assert asked == ["draft", "no"]
            replies = (await t.agents.outbox("critic")).items[:2]
            assert [(r.state, r.consumed_by_job_id) for r in replies] == [("consumed", handle.id)] * 2
            assert {r.to_agent_id for r in replies} == {agent}
        assert len((await t.jobs.list()).items) == 6


async def test_no_reply_in_time() -> None:
    async with TestApp() as t:

        @t.agent("slow").on_message(str)
        async def slow(ctx: JobContext, text: str) -> str:
            await ctx.sleep("think", "3h")
            return "yes"

        @t.job
        async def caught(ctx: JobContext) -> str:
            try:
                await ctx.ask("slow", "well?", timeout="1h")
            except ReplyTimeout as error:
                return str(error)
            return "replied"

        @t.job
        async def not_caught(ctx: JobContext) -> None:
            await ctx.ask("slow", "well?", timeout="1h")

        one, two = await t.enqueue(caught), await t.enqueue(not_caught)
        await t.run_until_idle(advance=True)
        assert await one.result() == "agent 'slow' did not reply in time"
        job = await two.get()
        assert (job.status, job.error_kind) == (Status.FAILED, "timeout")
        assert {r.state for r in (await t.agents.outbox("slow")).items} == {"late"}


async def test_bad_input() -> None:
    async with TestApp() as t:

        @t.job
        async def talk(ctx: JobContext) -> None:
            if ctx.agent_id is None:
                with pytest.raises(InvalidInput, match="not one of an agent"):
                    await ctx.receive()
                return
            wrong: Any
            for wrong in (0, 2.5, "2", True):
                with pytest.raises(InvalidInput, match="limit must be between 1 and 100"):
                    await ctx.receive(limit=wrong)
            with pytest.raises(InvalidInput, match="timeout"):
                await ctx.receive(timeout=-1)
            with pytest.raises(InvalidInput, match="for replies"):
                await ctx.receive("reply:1")
            with pytest.raises(InvalidInput, match="for replies"):
                await ctx.receive("Reply:1")
            with pytest.raises(AgentNotFound):
                await ctx.ask("bob", "hi")
            with pytest.raises(AgentPaused):
                await ctx.ask("cal", "hi")
            with pytest.raises(InvalidInput, match="timeout"):
                await ctx.ask("ann", "hi", timeout=-1)

        await t.agents.create("ann", kind="talk")
        await t.agents.create("cal", kind="talk")
        await t.agents.pause("cal")
        jobs = [await t.enqueue(talk, agent="ann"), await t.enqueue(talk)]
        await t.run_until_idle()
        for job in jobs:
            await job.result()


async def test_the_name_of_a_channel_may_look_like_that_of_a_reply(file_app: App) -> None:
    @file_app.job
    async def talk(ctx: JobContext, channel: str) -> list[Any]:
        return said(await ctx.receive(channel))

    async with working(file_app):
        await file_app.agents.create("ann", kind="talk", intake="inbox")
        for channel in ("1:reply:a", "mail:reply:7"):
            handle = await file_app.enqueue(talk, channel, agent="ann")
            await reached(handle, Status.PARKED)
            await file_app.agents.send("ann", "hello", channel=channel)
            assert await handle.result(PATIENCE) == ["hello"]


async def test_explain_names_what_is_waited_for() -> None:
    async with TestApp() as t:

        @t.job
        async def talk(ctx: JobContext) -> None:
            await ctx.receive("news", timeout="1h")

        await t.agents.create("ann", kind="talk")
        handle = await t.enqueue(talk, agent="ann")
        await t.run_until_idle()
        found = await t.jobs.explain(handle.id)
        assert "a message to agent 'ann' on channel 'news' is to come" in str(found)
        assert "perdure agents send ann TEXT --channel news" in str(found)


async def test_messages_between_workers_of_two_processes_wake_a_job_that_waits(file_app: App) -> None:
    @file_app.job
    async def talk(ctx: JobContext) -> list[Any]:
        return said(await ctx.receive("news", timeout=PATIENCE))

    await file_app.agents.create("ann", kind="talk")
    handle = await file_app.enqueue(talk, agent="ann")
    async with working(file_app, linger=PATIENCE * 2):

        async def waits() -> bool:
            return (await handle.get()).status is Status.WAITING

        await until(waits)
        await asyncio.gather(*(file_app.agents.send("ann", n, channel="news") for n in range(3)))
        assert await handle.result(timeout=PATIENCE) != []
    messages = (await file_app.agents.inbox("ann")).items
    assert all(message.consumed_by_job_id for message in messages)
