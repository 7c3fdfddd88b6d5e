"""A handler that waits for another job keeps its slot: without a limit that is refused, as the other job may need it."""

import asyncio

import pytest

from perdure import App, BlockingContext, Handle, JobContext, Status, WaitInsideJob
from perdure.sync import Client
from tests.runtime.support import NOW, PATIENCE, ended, soon, working


async def test_waiting_without_a_limit_fails_the_job_and_says_what_to_do(app: App) -> None:
    @app.job
    async def child(ctx: JobContext) -> str:
        return "done"

    async def wait_for(handle: Handle[str]) -> str:
        return await handle.result()

    @app.job(backoff=NOW)
    async def parent(ctx: JobContext, how: str) -> str:
        handle = await app.enqueue(child, idempotency_key=f"{ctx.job_id}")
        match how:
            case "itself":
                return await handle.result()
            case "a task":
                return await asyncio.create_task(wait_for(handle))
            case "a step":
                return await ctx.step("wait", wait_for, handle)
            case _:
                return str((await app.jobs.wait(handle.id)).status)

    async with working(app, concurrency=1):
        for how in ("itself", "a task", "a step", "the job"):
            job = await soon(ended(app, await app.enqueue(parent, how)))
            assert (job.status, job.error_kind, job.attempt) == (Status.FAILED, "fatal", 1)
            assert job.error_message is not None
            assert "WaitInsideJob: a handler waits without a limit for job …" in job.error_message
            assert "ctx.sleep" in job.error_message


async def test_what_the_error_says_to_do_works_with_one_slot(app: App) -> None:
    @app.job
    async def child(ctx: JobContext) -> str:
        return "done"

    @app.job
    async def parent(ctx: JobContext) -> str:
        handle = await app.enqueue(child, idempotency_key=f"{ctx.job_id}")
        while not (await handle.status()).terminal:
            await ctx.sleep("child", 0.3)
        return await handle.result()

    async with working(app, concurrency=1, linger=0):
        assert await (await app.enqueue(parent)).result(PATIENCE) == "done"


async def test_a_limit_may_be_waited_for(app: App) -> None:
    @app.job
    async def child(ctx: JobContext) -> str:
        return "done"

    @app.job
    async def parent(ctx: JobContext) -> str:
        return await (await app.enqueue(child)).result(PATIENCE)

    async with working(app, concurrency=2):
        assert await (await app.enqueue(parent)).result(PATIENCE) == "done"


async def test_a_plain_handler_that_waits_through_the_synchronous_client(file_app: App, file_store_url: str) -> None:
    @file_app.job
    def parent(ctx: BlockingContext) -> None:
        with Client(file_store_url) as client:
            handle = client.enqueue("child")
            with pytest.raises(WaitInsideJob):
                handle.result()

    async with working(file_app, concurrency=1):
        await (await file_app.enqueue(parent)).result(PATIENCE)


async def test_a_job_of_another_database_may_be_waited_for(app: App) -> None:
    async with App("memory:", migrate=True) as other:

        @other.job
        async def child(ctx: JobContext) -> str:
            return "done"

        @app.job
        async def parent(ctx: JobContext) -> str:
            return await (await other.enqueue(child)).result()

        async with working(app, concurrency=1), working(other):
            assert await (await app.enqueue(parent)).result(PATIENCE) == "done"
