"""Long-term memory from inside jobs: what one writes, others find."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from perdure import App, InvalidInput, JobContext, JobFailed, MemoryEntry, NotFound, Retry
from perdure.model.steps import steps_of
from perdure.runtime.context.blocking import BlockingContext
from perdure.testing import ManualClock, TestApp
from tests.runtime.support import PATIENCE, working

POOL = "用户曾排查日志中 connection pool 耗尽问题,根因是上游服务限流配置过低,建议调整至 100 QPS。"
QUESTION = "上次那个日志问题后来怎么解决的?"
FILLERS = (
    "第{n}次会议纪要:讨论了支付接口和排期,负责人是小王。",
    "Build {n} of the shop passed; its image was pushed to the registry.",
    "用户偏好:报告{n}使用中文,表格放在最后。",
    "Ticket {n}: the invoice template rounds totals to cents.",
    "日志保留{n}天,之后归档到对象存储。",
    "问题{n}:登录页面在手机上错位,已由前端修复。",
)


async def keys(app: App, job_id: UUID) -> list[str]:
    """The keys of what a job has recorded."""
    return [step.key for step in steps_of(await app.jobs.events(job_id))]


async def test_a_job_writes_what_another_finds(app: App) -> None:
    @app.job
    async def debug(ctx: JobContext) -> str:
        return str(await ctx.memory.write(POOL, tags=["logs"], source="the logs of Monday"))

    @app.job
    async def answer(ctx: JobContext) -> list[str]:
        return [hit.entry.text for hit in await ctx.memory.search(QUESTION)]

    async with working(app):
        wrote = await app.enqueue(debug)
        id = await wrote.result(timeout=PATIENCE)
        asked = await app.enqueue(answer)
        assert await asked.result(timeout=PATIENCE) == [POOL]
    entry = await app.memory.get(id)
    assert (entry.job_id, entry.tags, entry.source, entry.created_by) == (
        wrote.id,
        ("logs",),
        "the logs of Monday",
        "job:debug",
    )
    assert await keys(app, wrote.id) == ["memory_write"]
    assert await keys(app, asked.id) == ["memory_search"]


async def test_the_example_of_the_design_document() -> None:
    """Three days later, among 1,000 others, without a model and without a key."""
    app = App()

    @app.job
    async def debug(ctx: JobContext) -> None:
        await ctx.memory.write(POOL)

    @app.job
    async def answer(ctx: JobContext) -> str:
        return (await ctx.memory.search(QUESTION))[0].entry.text

    async with TestApp(app, clock=ManualClock()) as kit:
        store = await kit.open()
        await kit.enqueue(debug)
        await kit.run_until_idle()
        kit.clock.advance(timedelta(days=3).total_seconds())
        for n in range(1000):
            await kit.memory.write(FILLERS[n % len(FILLERS)].format(n=n))
        [head] = await store.memories.memory_scopes(None)
        assert head.entries == 1001
        job = await kit.enqueue(answer)
        assert await job.result() == POOL


async def test_a_replay_neither_writes_nor_searches_again(app: App) -> None:
    attempts: list[Any] = []

    @app.job(max_retries=2)
    async def work(ctx: JobContext) -> int:
        first = await ctx.memory.write("the pool has 50 connections")
        found = await ctx.memory.search("how many connections has the pool?")
        attempts.append((first, [hit.entry.text for hit in found]))
        if ctx.attempt == 1:
            await app.memory.write("the pool has 60 connections")
            raise Retry(after=0)
        return len(await ctx.memory.search("how many connections has the pool?"))

    async with working(app):
        job = await app.enqueue(work)
        assert await job.result(timeout=PATIENCE) == 2
    assert attempts[0] == attempts[1]
    assert len((await app.memory.list()).items) == 2


async def test_a_job_reaches_its_own_scopes_alone(app: App) -> None:
    other = await app.memory.write("a secret of bob", scope="user:bob")
    await app.memory.write("a secret of another job", scope="job:other")
    shared = await app.memory.write("the shop deploys on Monday", scope="project:shop")

    @app.job
    async def work(ctx: JobContext) -> list[str]:
        for scope in ("user:bob", "job:other", "agent:ann", "agent", "planet:9", "user:", ""):
            with pytest.raises(InvalidInput, match="memory"):
                await ctx.memory.search("secret", scope=scope)
            with pytest.raises(InvalidInput, match="memory"):
                await ctx.memory.write("mine", scope=scope)
        with pytest.raises(NotFound):
            await ctx.memory.get(other.id)
        assert (await ctx.memory.get(shared.id)).text == shared.text
        assert await ctx.memory.search("a secret") == []
        await ctx.memory.write("a secret of this job", scope="job")
        found = [*await ctx.memory.search("a secret"), *await ctx.memory.search("deploys", scope="project:shop")]
        return [hit.entry.text for hit in found]

    async with working(app):
        job = await app.enqueue(work)
        assert await job.result(timeout=PATIENCE) == ["a secret of this job", "the shop deploys on Monday"]


async def test_the_user_of_a_job_is_the_one_that_it_was_enqueued_with(app: App) -> None:
    @app.job
    async def learn(ctx: JobContext, text: str) -> list[str]:
        await ctx.memory.write(text)
        return [f"{hit.entry.scope} {hit.entry.text}" for hit in await ctx.memory.search("which colour is liked?")]

    async with working(app):
        ann = await app.enqueue(learn, "the colour red is liked", user_id="ann")
        assert await ann.result(PATIENCE) == ["user:ann the colour red is liked"]
        bob = await app.enqueue(learn, "the colour blue is liked", user_id="bob")
        assert await bob.result(PATIENCE) == ["user:bob the colour blue is liked"]
        long = await app.enqueue(learn, "x", user_id="x" * 201, max_retries=0)
        with pytest.raises(JobFailed, match="unknown scope"):
            await long.result(PATIENCE)


async def test_a_job_consolidates_what_it_wrote(app: App) -> None:
    calls: list[int] = []
    kept = await app.memory.write("the shop closes at 8", scope="project:shop")

    async def summarise(entries: list[MemoryEntry]) -> list[str]:
        calls.append(len(entries))
        return ["in short: " + ", ".join(entry.text for entry in entries)]

    @app.job(max_retries=1)
    async def work(ctx: JobContext) -> list[str]:
        for text in ("red sells", "blue does not"):
            await ctx.memory.write(text, scope="project:shop")
        [id] = await ctx.memory.consolidate(summarise, scope="project:shop", tags=["colours"])
        if ctx.attempt == 1:
            raise Retry(after=0)
        assert await ctx.memory.consolidate(summarise, scope="job") == []
        return [str(id)]

    async with working(app):
        job = await app.enqueue(work)
        [id] = await job.result(PATIENCE)
    assert calls == [2], "once, as it is a step, and not without entries"
    found = await app.memory.list(scope="project:shop")
    assert {entry.text for entry in found.items} == {"in short: red sells, blue does not", kept.text}
    new = await app.memory.get(id)
    assert (new.kind, new.tags, new.job_id) == ("summary", ("colours",), job.id)
    assert len((await app.memory.list(scope="project:shop", live=False)).items) == 2


async def test_the_same_text_is_written_once_by_a_job(app: App) -> None:
    @app.job
    async def work(ctx: JobContext) -> int:
        ids = {await ctx.memory.write("the pool has 50 connections") for _ in range(3)}
        return len({*ids, await ctx.memory.write("the pool has 50 connections", scope="job")})

    async with working(app):
        job = await app.enqueue(work)
        assert await job.result(timeout=PATIENCE) == 2
    assert len((await app.memory.list(job=job.id)).items) == 2


async def test_a_plain_handler_has_it_too(app: App) -> None:
    @app.job
    def work(ctx: BlockingContext) -> str:
        id = ctx.memory.write(POOL)
        assert ctx.memory.get(id).text == POOL
        return ctx.memory.search(QUESTION)[0].entry.text

    async with working(app):
        job = await app.enqueue(work)
        assert await job.result(timeout=PATIENCE) == POOL


async def test_an_agent_loop_gets_it_as_tools(app: App) -> None:
    @app.job
    async def agent(ctx: JobContext) -> str:
        write, search = ctx.memory.tools()
        assert (write.__name__, search.__name__) == ("memory_write", "memory_search")
        assert await search(QUESTION) == "nothing is remembered about that"
        await write(POOL)
        return await search(QUESTION)

    @app.job
    def plain(ctx: BlockingContext) -> str:
        write, search = ctx.memory.tools()
        assert (write.__name__, bool(write.__doc__)) == ("memory_write", True)
        return search(QUESTION)

    async with working(app):
        job = await app.enqueue(agent)
        said = await job.result(timeout=PATIENCE)
        assert said.startswith(f"- {POOL} (")
        assert await keys(app, job.id) == ["memory_search", "memory_write", "memory_search#2"]
        assert await (await app.enqueue(plain)).result(timeout=PATIENCE) == said
