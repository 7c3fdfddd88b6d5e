"""A worker does not keep for itself what others could run, and a step does not outlive its attempt."""

import asyncio

import pytest

from perdure import App, Backoff, BlockingContext, JobContext, Request, Status
from perdure.model.errors import InvalidInput
from perdure.runtime.validation import check_names
from tests.runtime.support import PATIENCE, ended, types, until, working


async def test_jobs_claimed_ahead_go_back_when_no_slot_comes_free(app: App) -> None:
    go, started = asyncio.Event(), []

    @app.job
    async def work(ctx: JobContext, n: int) -> int:
        started.append(n)
        if n == -1:
            await go.wait()
        return n

    async with working(app, concurrency=1):
        await app.enqueue_many([Request(work, n) for n in range(30)])  # quick: the worker claims ahead
        await until(lambda: len(started) == 30)
        requests = [Request(work, -1, {"priority": 9}), *(Request(work, 100 + n) for n in range(3))]
        _, *ahead = await app.enqueue_many(requests)
        await until(lambda: -1 in started)
        async with working(app, concurrency=1):  # a worker with a free slot gets them
            assert [await handle.result(PATIENCE) for handle in ahead] == [100, 101, 102]
        go.set()


async def test_a_parallel_step_ends_with_its_attempt(app: App) -> None:
    inside: list[int] = []
    most: list[int] = []

    async def effect() -> None:
        inside.append(1)
        most.append(len(inside))
        try:
            await asyncio.sleep(0.3)
        finally:
            inside.pop()

    async def boom() -> None:
        raise ValueError("boom")

    @app.job(max_retries=2, backoff=Backoff(base=0, jitter=0))
    async def work(ctx: JobContext) -> None:
        await asyncio.gather(ctx.step("effect", effect), ctx.step("boom", boom))

    async with working(app):
        job = await ended(app, await app.enqueue(work))
    assert job.status is Status.DEADLETTER
    assert most == [1, 1, 1]


@pytest.mark.parametrize("name", ["x#2", "x[a]"])
async def test_a_name_that_looks_like_a_repeat_or_a_key_is_refused(app: App, name: str) -> None:
    @app.job
    async def work(ctx: JobContext) -> None:
        await ctx.checkpoint(1)
        await ctx.sleep(name, 0)

    async with working(app):
        job = await ended(app, await app.enqueue(work))
    assert (job.status, job.error_kind) == (Status.FAILED, "fatal")
    assert "choose another" in (job.error_message or "")


async def test_a_notifier_that_raises_keeps_the_token_out_of_the_log(app: App) -> None:
    tokens: list[str] = []

    def notify(request: object) -> None:
        token = request.token  # type: ignore[attr-defined]  # an ApprovalRequest
        tokens.append(token)
        assert token not in repr(request)
        if len(tokens) == 1:
            raise ConnectionError(f"POST https://chat.example/hook?t={token} failed")

    @app.job(backoff=Backoff(base=0, jitter=0))
    async def work(ctx: JobContext) -> str:
        decision = await ctx.approve("ok", title="OK?", payload="x", notify=notify)
        return decision.payload

    async with working(app):
        handle = await app.enqueue(work)
        await until(lambda: len(tokens) == 2)
        report = [str(e.payload) for e in await handle.events()]
        assert not any(token in text for token in tokens for text in report)
        assert any("***" in text for text in report)
        await app.approve(token=tokens[1])
        assert await handle.result(PATIENCE) == "x"
    assert types(await handle.events()).count("approval_requested") == 1


async def test_an_app_serves_one_event_loop_after_another(tmp_path: object) -> None:
    app = App(f"sqlite:///{tmp_path}/loops.db")

    @app.job
    def work(ctx: BlockingContext) -> int:
        return 1

    def enqueue() -> None:
        asyncio.run(_enqueue(app))

    for _ in range(3):
        await asyncio.to_thread(enqueue)
    assert sum((await app.jobs.count()).values()) == 3
    await app.close()


async def _enqueue(app: App) -> None:
    await app.enqueue("work")


def test_assignees_are_a_list() -> None:

    with pytest.raises(InvalidInput):
        check_names("bob", "assignees")
