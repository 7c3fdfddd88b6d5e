"""Agents through the client and the context: messages start jobs, and are sent once; a reply commits with the end."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    AgentBusy,
    AgentExists,
    AgentInUse,
    AgentNotFound,
    AgentPaused,
    App,
    Backoff,
    BlockingContext,
    InvalidInput,
    JobContext,
    Message,
    NegativeDelay,
    Request,
    Retry,
    Status,
    TooLarge,
)
from perdure.testing import TestApp
from tests.runtime.support import PATIENCE, working


@dataclass
class Review:
    text: str
    score: int = 0


async def texts(t: TestApp, agent: str, box: str = "inbox") -> list[Any]:
    """What the messages of a box say, oldest first."""
    return [m.payload for m in reversed((await getattr(t.agents, box)(agent)).items)]


async def test_a_handler_of_an_agent_replies() -> None:
    async with TestApp() as t:

        @t.agent("reviewer", meta={"persona": "strict"}).on_message(Review)
        async def review(ctx: JobContext, review: Review) -> Review:
            assert ctx.agent is not None
            assert ctx.message is not None
            assert ctx.message.payload == {"text": "draft", "score": 0}
            assert (ctx.agent_id, ctx.session_id) == ("reviewer", "s1")
            return Review(f"{review.text}, {ctx.agent.meta['persona']}", await ctx.step("score", int, 7))

        handle = await t.agents.message("reviewer", Review("draft"), session="s1")
        assert await handle.result() == {"text": "draft, strict", "score": 7}
        assert await texts(t, "reviewer", "outbox") == [{"text": "draft, strict", "score": 7}]
        [asked] = (await t.agents.inbox("reviewer")).items
        [reply] = (await t.agents.outbox("reviewer")).items
        assert (asked.consumed_by_job_id, reply.job_id, reply.reply_to) == (handle.id, handle.id, asked.id)


async def test_agents_send_to_each_other_once_whatever_is_replayed() -> None:
    async with TestApp() as t:

        @t.agent("writer")
        async def write(ctx: JobContext, message: Message) -> None:
            if message.reply_to is not None:
                return
            for n in range(2):
                await ctx.send("critic", f"{message.payload}-{n}")
            if ctx.attempt < 3:
                raise Retry(after=0)

        @t.agent("critic").on_message(str)
        def judge(ctx: BlockingContext, text: str) -> str:
            return ctx.step("judge", str.upper, text)

        await t.agents.send("writer", "draft")
        await t.run_until_idle(advance=True)
        assert await texts(t, "critic") == ["draft-0", "draft-1"]
        assert await texts(t, "critic", "outbox") == ["DRAFT-0", "DRAFT-1"]
        assert await texts(t, "writer") == ["draft", "DRAFT-0", "DRAFT-1"]
        sent = (await t.agents.outbox("writer")).items
        first = (await t.agents.inbox("writer")).items[-1]
        assert {m.causation_id for m in sent} == {str(first.id)}
        assert {m.state for m in sent} == {"consumed"}


async def test_a_worker_creates_its_agents_and_changes_none() -> None:
    async with TestApp() as t:
        t.agent("ann", name="Ann", queue="agents")(lambda ctx, message: None)
        t.agent("bob", name="Bob")(lambda ctx, message: None)
        await t.agents.create("bob", name="Robert")
        await t.run_until_idle()
        ann, bob = await t.agents.get("ann"), await t.agents.get("bob")
        assert ann is not None
        assert bob is not None
        assert (ann.name, ann.queue, bob.name) == ("Ann", "agents", "Robert")


async def test_an_agent_is_created_by_its_first_message() -> None:
    async with TestApp() as t:
        t.agent("known", name="Known")(lambda ctx, message: None)
        await t.agents.send("known", "hi")
        known = await t.agents.get("known")
        assert known is not None
        assert known.name == "Known"
        await t.agents.send("user-7", "hi", kind="known")
        other = await t.agents.get("user-7")
        assert other is not None
        assert other.kind == "known"
        with pytest.raises(AgentNotFound):
            await t.agents.send("nobody", "hi")


async def test_a_delayed_message_is_delivered_when_it_is_due() -> None:
    async with TestApp() as t:
        t.agent("ann")(lambda ctx, message: None)
        await t.agents.send("ann", "later", delay="1h")
        await t.agents.send("ann", "never", delay="1h", expires_in="30m")
        await t.run_until_idle()
        assert (await t.jobs.list()).items == ()
        await t.run_until_idle(advance="2h")
        [job] = (await t.jobs.list()).items
        assert job.goal == "later"
        assert job.created_at - (await t.agents.inbox("ann")).items[1].due_at < timedelta(seconds=2)
        assert [m.state for m in (await t.agents.inbox("ann")).items] == ["expired", "consumed"]


async def test_a_message_that_does_not_fit_fails_its_job() -> None:
    async with TestApp() as t:

        @t.agent("ann").on_message(Review)
        async def review(ctx: JobContext, review: Review) -> None: ...

        handle = await t.agents.message("ann", {"score": "x"})
        await t.run_until_idle()
        job = await t.jobs.get(handle.id)
        assert job.error_message is not None
        assert "a message to agent 'ann' does not fit Review: text: Field required" in job.error_message


async def test_enqueue_for_an_agent() -> None:
    async with TestApp() as t:

        @t.job
        async def work(ctx: JobContext, n: int) -> list[Any]:
            return [ctx.agent_id, ctx.session_id, None if ctx.agent is None else ctx.agent.name]

        await t.agents.create("ann", name="Ann", default_session_id="main", max_retries=7)
        one = await t.enqueue(work, 1, agent="ann")
        assert await one.result() == ["ann", "main", "Ann"]
        job = await t.jobs.get(one.id)
        assert (job.agent_id, job.session_id, job.max_retries) == ("ann", "main", 7)
        [many] = await t.enqueue_many([Request(work, 2, {"agent": "ann", "session": "s"})])
        assert await many.result() == ["ann", "s", "Ann"]
        again = await t.jobs.rerun(one.id)
        assert await again.result() == ["ann", "main", "Ann"]
        unknown = await t.enqueue(work, 3, agent="nobody")
        await unknown.result()
        assert (await t.jobs.get(unknown.id)).agent_id == "nobody"
        assert await t.agents.get("nobody") is None
        with pytest.raises(InvalidInput, match="session needs an agent"):
            await t.enqueue(work, 4, session="s")


async def test_bad_input() -> None:
    async with TestApp() as t:
        await t.agents.create("ann")
        with pytest.raises(AgentExists, match="there is an agent 'ann' already"):
            await t.agents.create("ann")
        with pytest.raises(InvalidInput, match="an agent's name"):
            await t.agents.create("a b")
        with pytest.raises(InvalidInput, match="batch is a whole number"):
            await t.agents.create("bob", batch=0)
        with pytest.raises(InvalidInput, match="an agent has no colour"):
            await t.agents.update("ann", colour="red")
        with pytest.raises(NegativeDelay):
            await t.agents.send("ann", "x", delay=-1)
        with pytest.raises(TooLarge, match="1,000,000"):
            await t.agents.send("ann", "x" * 1_000_001)
        with pytest.raises(InvalidInput, match="for replies"):
            await t.agents.send("ann", "x", channel="reply:1")
        with pytest.raises(InvalidInput, match="limit must be between 1 and 1000"):
            await t.agents.list(limit=0)
        with pytest.raises(InvalidInput, match="the status of an agent is"):
            await t.agents.list(status="tired")
        with pytest.raises(AgentNotFound):
            await t.agents.inbox("bob")
        with pytest.raises(AgentNotFound):
            await t.agents.send("ann", "x", from_="bob")
        await t.agents.pause("ann")
        with pytest.raises(AgentPaused):
            await t.agents.send("ann", "x")
        assert (await t.agents.inbox("ann")).items == ()
        await t.agents.resume("ann")
        assert (await t.agents.send("ann", "x")).job_id is not None


async def test_a_job_without_an_agent_sends_too() -> None:
    async with TestApp() as t:

        @t.job
        async def work(ctx: JobContext) -> None:
            assert (ctx.agent, ctx.agent_id, ctx.session_id, ctx.message, ctx.agent_messages) == (
                None,
                None,
                None,
                None,
                (),
            )
            await ctx.send("ann", "hi")
            with pytest.raises(AgentNotFound):
                await ctx.send("bob", "hi")

        t.agent("ann")(lambda ctx, message: None)
        handle = await t.enqueue(work)
        await t.run_until_idle()
        await handle.result()
        [message] = (await t.agents.inbox("ann")).items
        assert (message.job_id, message.from_agent_id, message.state) == (handle.id, None, "consumed")


async def test_the_backoff_of_an_agent_wins_over_that_of_its_handler() -> None:
    async with TestApp() as t:

        @t.job(backoff=Backoff(base=0, cap=0), max_retries=2)
        async def ann(ctx: JobContext) -> None:
            raise RuntimeError("again")

        for agent, backoff in (("patient", Backoff(base=1e6, cap=1e6)), ("plain", None)):
            await t.agents.create(agent, kind="ann", backoff=backoff)
        jobs = [await t.enqueue(ann, agent=agent) for agent in ("patient", "plain")]
        await t.run_until_idle()
        assert [(await job.get()).status for job in jobs] == [Status.RETRY, Status.DEADLETTER]


async def test_an_agent_does_with_a_message_what_it_can_do() -> None:
    async with TestApp() as t:
        with pytest.raises(InvalidInput, match="on_busy"):
            await t.agents.create("ann", on_busy="sleep")  # type: ignore[arg-type]  # it is not one of the words


async def test_an_agent_that_rejects_takes_one_message_at_a_time() -> None:
    async with TestApp() as t:

        @t.agent("ann", on_busy="reject")
        async def work(ctx: JobContext, message: Message) -> list[Any]:
            more = await ctx.receive("more")
            return [message.payload, more[0].payload]

        @t.job
        async def other(ctx: JobContext) -> None:
            await ctx.send("ann", "from a job")

        first = await t.agents.message("ann", "one")
        for send in (t.agents.send, t.agents.message):
            with pytest.raises(AgentBusy, match="agent 'ann' has a job"):
                await send("ann", "two")
        await t.agents.send("ann", "later", delay="1h", idempotency_key="later")
        assert await texts(t, "ann") == ["one", "later"]
        await t.run_until_idle()
        await t.agents.send("ann", "more", channel="more")
        await t.run_until_idle()
        assert await first.result() == ["one", "more"]
        asked = await t.enqueue(other)
        await t.run_until_idle()
        assert (await asked.get()).status is Status.COMPLETED
        assert await texts(t, "ann") == ["one", "later", "more", "from a job"]


async def test_a_message_interrupts_the_job_of_its_session() -> None:
    async with TestApp() as t:

        @t.agent("ann", on_busy="interrupt", max_parallel_jobs=5)
        async def work(ctx: JobContext, message: Message) -> Any:
            if message.payload == "wait":
                await ctx.receive("never")
            return message.payload

        suspended = await t.agents.message("ann", "wait", session="x")
        await t.run_until_idle()
        old = await t.agents.message("ann", "old", session="x")
        other = await t.agents.message("ann", "other", session="y")
        sent = [await t.agents.send("ann", text, session="x", from_=None) for text in ("new", "newest")]
        await t.run_until_idle()
        assert sent[0].job_id is not None
        statuses = [(await t.jobs.get(id)).status for id in (suspended.id, old.id, other.id, sent[0].job_id)]
        assert statuses == [Status.PARKED, Status.CANCELLED, Status.COMPLETED, Status.CANCELLED]
        cancelled = await t.jobs.events(old.id)
        assert cancelled[-1].payload["reason"] == f"interrupted by message {sent[0].id}"
        assert sent[1].job_id is not None
        assert (await t.jobs.get(sent[1].job_id)).result == "newest"


async def test_a_message_interrupts_a_job_that_runs(file_app: App) -> None:
    running = asyncio.Event()

    @file_app.agent("ann", on_busy="interrupt")
    async def work(ctx: JobContext, message: Message) -> Any:
        if message.payload == "old":
            running.set()
            await asyncio.Event().wait()
        return message.payload

    async with working(file_app):
        old = await file_app.agents.message("ann", "old")
        await asyncio.wait_for(running.wait(), PATIENCE)
        new = await file_app.agents.message("ann", "new")
        assert await new.result(timeout=PATIENCE) == "new"
        assert (await old.get()).status is Status.CANCELLED


async def test_jobs_are_listed_by_agent_and_session(file_app: App) -> None:
    @file_app.job
    async def work(ctx: JobContext) -> None: ...

    await file_app.agents.create("ann", kind="work")
    ids = {
        (agent, session): (await file_app.enqueue(work, agent=agent, session=session)).id
        for agent, session in (("ann", "x"), ("ann", "y"), ("bob", "x"))
    }
    await file_app.enqueue(work)

    async def listed(**filters: Any) -> list[Any]:
        return [job.id for job in (await file_app.jobs.list(**filters)).items]

    assert await listed(agent="ann") == [ids["ann", "y"], ids["ann", "x"]]
    assert await listed(agent="ann", session="x", status="pending") == [ids["ann", "x"]]
    assert await listed(session="x") == [ids["bob", "x"], ids["ann", "x"]]
    assert await listed(agent="ann", status="running") == []
    first = await file_app.jobs.list(agent="ann", limit=1)
    assert [job.id for job in (await file_app.jobs.list(agent="ann", cursor=first.next_cursor)).items] == [
        ids["ann", "x"]
    ]


async def test_a_forced_deletion_of_an_agent_cancels_its_jobs() -> None:
    async with TestApp() as t:

        @t.job
        async def talk(ctx: JobContext) -> None:
            await ctx.receive("news")

        await t.agents.create("ann", kind="talk", on_busy="parallel")
        handles = [await t.enqueue(talk, agent="ann") for _ in range(2)]
        await t.run_until_idle()
        with pytest.raises(AgentInUse, match="2 jobs"):
            await t.agents.delete("ann")
        assert await t.agents.get("ann") is not None
        await t.agents.delete("ann", force=True)
        assert [(await handle.get()).status for handle in handles] == [Status.CANCELLED] * 2
        assert await t.agents.get("ann") is None
        with pytest.raises(AgentNotFound):
            await t.agents.delete("ann", force=True)
