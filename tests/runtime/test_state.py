"""What a running job says about itself: checkpoint, progress, usage, events of its own."""

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from perdure import App, JobContext, Status
from perdure.model.errors import InvalidInput
from perdure.model.events import RESERVED_TYPES
from perdure.model.jobs import MAX_JSON_BYTES
from tests.runtime.support import LONG, NOW, PATIENCE, ended, reached, types, until, working


async def test_the_last_checkpoint_meets_the_next_attempt(app: App) -> None:
    seen: list[Any] = []

    @app.job(backoff=NOW)
    async def pages(ctx: JobContext) -> Any:
        seen.append(ctx.last_checkpoint)
        await ctx.checkpoint({"page": ctx.attempt, "done": [1.5, None, "ä"]})
        await ctx.checkpoint({"page": ctx.attempt * 10})
        assert ctx.last_checkpoint == {"page": ctx.attempt * 10}
        if ctx.attempt < 3:
            raise OSError("replay, please")
        return ctx.last_checkpoint

    async with working(app):
        handle = await app.enqueue(pages)
        assert await handle.result(PATIENCE) == {"page": 30}
    assert seen == [None, {"page": 10}, {"page": 20}]
    assert (await handle.get()).state.checkpoint == {"page": 30}
    assert types(await handle.events()).count("checkpoint_saved") == 6


async def test_a_checkpoint_of_none_and_of_a_mebibyte(app: App) -> None:
    @app.job(max_retries=0)
    async def one(ctx: JobContext, size: int) -> str:
        await ctx.checkpoint(None)
        await ctx.checkpoint("x" * size)
        return "saved"

    async with working(app):
        fits = await app.enqueue(one, MAX_JSON_BYTES - 2)
        assert await fits.result(PATIENCE) == "saved"
        job = await ended(app, await app.enqueue(one, MAX_JSON_BYTES - 1))
    assert (job.status, job.error_kind) == (Status.FAILED, "fatal")
    assert "the checkpoint is 1,048,577 bytes" in (job.error_message or "")


async def test_progress_shows_while_the_job_runs(app: App) -> None:
    go = asyncio.Event()

    @app.job
    async def slow(ctx: JobContext) -> None:
        await ctx.progress(0.25, "a quarter")
        await go.wait()
        await ctx.progress(0.5)
        for n in range(50, 100):
            await ctx.progress(n / 100, f"{n} %")

    async with working(app):
        handle = await app.enqueue(slow)

        async def quarter() -> bool:
            return (await handle.get()).state.progress == 0.25

        await until(quarter)
        assert (await handle.get()).state.progress_text == "a quarter"
        version = (await handle.get()).version
        go.set()
        await handle.result(PATIENCE)
    job = await handle.get()
    assert (job.state.progress, job.state.progress_text) == (0.99, "99 %")
    assert job.version == version + 1, "progress is no event"


@pytest.mark.parametrize("end", ["fail", "park", "retry"])
async def test_the_last_progress_is_kept_however_the_attempt_ends(app: App, end: str) -> None:
    @app.job(max_retries=1)
    async def one(ctx: JobContext) -> None:
        await ctx.progress(0.1)
        await ctx.progress(0.75, "almost")
        if end == "park":
            await ctx.sleep("nap", LONG)
        raise OSError("no")

    async with working(app):
        handle = await app.enqueue(one, max_retries=1 if end == "retry" else 0)
        status = {"fail": Status.DEADLETTER, "park": Status.PARKED, "retry": Status.RETRY}[end]
        job = await reached(handle, status)
        assert (job.state.progress, job.state.progress_text) == (0.75, "almost")


async def test_progress_is_checked_and_its_text_cut(app: App) -> None:
    @app.job(max_retries=0)
    async def one(ctx: JobContext) -> int:
        refused = 0
        for bad in (-0.1, 1.1, float("nan")):
            try:
                await ctx.progress(bad)
            except InvalidInput:
                refused += 1
        await ctx.progress(1, "x" * 10_000)
        return refused

    async with working(app):
        handle = await app.enqueue(one)
        assert await handle.result(PATIENCE) == 3
    state = (await handle.get()).state
    assert state.progress == 1.0
    assert 0 < len(state.progress_text or "") <= 500


async def test_events_of_ones_own(app: App) -> None:
    @app.job
    async def one(ctx: JobContext) -> list[str]:
        await ctx.emit("plan_generated", {"steps": ["a", "b"]})
        await ctx.emit("my.event-1")
        await ctx.emit("note", "just text")
        refused = []
        for reserved in sorted(RESERVED_TYPES):
            try:
                await ctx.emit(reserved)
            except InvalidInput:
                refused.append(reserved)
        for bad in ("", "two words", "x" * 101, "a\nb"):
            try:
                await ctx.emit(bad)
            except InvalidInput:
                refused.append(bad)
        return refused

    async with working(app):
        handle = await app.enqueue(one)
        assert len(await handle.result(PATIENCE)) == len(RESERVED_TYPES) + 4
    mine = [(e.type, e.payload, e.attempt) for e in (await handle.events())[2:-1]]
    assert mine == [
        ("plan_generated", {"steps": ["a", "b"]}, 1),
        ("my.event-1", {}, 1),
        ("note", "just text", 1),
    ]


async def test_usage_adds_up(app: App) -> None:
    @app.job(backoff=NOW)
    async def one(ctx: JobContext) -> int:
        await asyncio.gather(*(ctx.usage(tokens=10, cost=0.25) for _ in range(4)))
        if ctx.attempt == 1:
            raise OSError("replay, please")
        refused = 0
        wrong: list[tuple[Any, Any]] = [(-1, 0.0), (0, -0.5), (0, float("inf")), (0, float("nan"))]
        wrong += [(1.5, 0.0), (2**70, 0.0), ("1", 0.0), (0, 1e308), (0, Decimal("1E-31")), (0, "much"), (0, True)]
        for tokens, cost in wrong:
            try:
                await ctx.usage(tokens=tokens, cost=cost)
            except InvalidInput:
                refused += 1
        return refused

    async with working(app):
        handle = await app.enqueue(one)
        assert await handle.result(PATIENCE) == 11
    state = (await handle.get()).state
    assert (state.tokens, state.cost) == (40, Decimal(1))


async def test_the_context_knows_its_job(app: App) -> None:
    @app.job(backoff=NOW, max_retries=4)
    async def who(ctx: JobContext) -> list[Any]:
        if ctx.attempt == 1:
            raise OSError("replay, please")
        return [str(ctx.job_id), ctx.kind, ctx.goal, ctx.attempt, ctx.retry_count, ctx.worker_id]

    async with working(app) as worker:
        handle = await app.enqueue(who, goal="find out")
        assert await handle.result(PATIENCE) == [str(handle.id), "who", "find out", 2, 1, worker.id]
