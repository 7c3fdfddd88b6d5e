"""`Database.fsck`: while workers run it finds nothing, however often it checks."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from perdure import App, Backoff, Finding, JobContext, Snooze
from perdure.model.errors import Conflict, SchemaMissing, StoreUnreachable
from perdure.runtime.client.fsck import PAGE
from perdure.sync import Client
from tests.runtime.support import LINGER, PATIENCE, working

JOBS = 60
LOOKS = 5


def busy_app(url: str) -> App:
    """One handler that does a little of everything."""
    app = App(url)

    @app.job(max_retries=5, backoff=Backoff(base=0.01, cap=0.02))
    async def busy(ctx: JobContext, n: int) -> int:
        await ctx.step("first", lambda: n)
        await asyncio.gather(*(ctx.options(key=str(i)).step("side", asyncio.sleep, 0.001 * i) for i in range(3)))
        await ctx.tool("effect", lambda: n)
        await ctx.checkpoint({"n": n})
        await ctx.usage(tokens=n, cost=0.1 * n)
        await ctx.progress(0.5)
        await ctx.sleep("lingers", LINGER / 4)
        if n % 3 == 0:
            await ctx.sleep("parks", LINGER * 2)
        if n % 4 == 0:
            await ctx.approve("ok", title="Ok?", expires_in="1h" if n % 8 else "100ms", on_expiry="continue")
        if n % 5 == ctx.retry_count:
            raise RuntimeError("stumbled")
        if n % 7 == 0 and ctx.attempt < 4:
            raise Snooze(0.01)
        await ctx.options(on_change="rerun").step("changing", lambda x: x, ctx.retry_count)
        return n

    return app


@asynccontextmanager
async def people(app: App) -> AsyncIterator[None]:
    """Answers, cancels, hurries and prunes jobs."""

    async def act() -> None:
        while True:
            for approval in (await app.approvals.list(limit=5)).items:
                with suppress(Conflict):
                    await random.choice((app.approve, app.approve, app.deny))(approval.id)
            for job in (await app.jobs.list(status=["RETRY", "PARKED", "RUNNING"], limit=20)).items:
                with suppress(Conflict):
                    if random.random() < 0.03:
                        await app.jobs.cancel(job.id, force=random.random() < 0.5)
                    elif job.status == "RETRY":
                        await app.jobs.retry_now(job.id)
            await app.database.prune(older_than="0s", keep_logs=True)
            await asyncio.sleep(0.01)

    acting = asyncio.create_task(act())
    try:
        yield
        assert not acting.done(), acting.exception()
    finally:
        acting.cancel()


async def test_work_is_never_taken_for_damage(store_url: str) -> None:
    apps = [busy_app(store_url)]
    if store_url != "memory:":
        apps.append(busy_app(store_url))
    looks, found = 0, list[Finding]()
    async with AsyncExitStack() as stack:
        for app in apps:
            await stack.enter_async_context(app)
            await stack.enter_async_context(working(app, concurrency=7, lease=30))
        await stack.enter_async_context(people(apps[0]))
        for n in range(JOBS):
            await apps[0].enqueue("busy", n, delay=0.02 * (n % 10))
        async with asyncio.timeout(4 * PATIENCE):
            while looks < LOOKS or await unfinished(apps[0]):
                findings = apps[-1].database.fsck(fix=True)
                found += [finding async for finding in findings]
                assert findings.jobs == JOBS
                looks += 1
    assert found == []


async def unfinished(app: App) -> bool:
    return bool(
        (await app.jobs.list(status=["PENDING", "RUNNING", "RETRY", "WAITING", "PARKED", "WAITING_FOR_APPROVAL"])).items
    )


async def test_findings_of_many_pages(store_url: str) -> None:
    async with App(store_url) as app:
        await app.enqueue_many([])
        for n in range(2 * PAGE + 1):
            await app.enqueue("elsewhere", n, elsewhere=True)
        findings = app.database.fsck()
        assert [finding async for finding in findings] == []
        assert findings.jobs == 2 * PAGE + 1


def test_from_synchronous_code(file_store_url: str) -> None:
    with Client(file_store_url) as client:
        client.enqueue("x", elsewhere=True)
        assert list(client.database.fsck()) == list(client.database.fsck(fix=True)) == []


async def test_an_app_that_must_not_migrate_leaves_a_place_alone(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreachable, match="there is no database at"):
        await anext(App(f"sqlite:///{tmp_path}/none.db", migrate=False).database.fsck())
    with pytest.raises(SchemaMissing):
        await anext(App("memory:", migrate=False).database.fsck())
    assert list(tmp_path.iterdir()) == []
