"""Batches: one callback when all jobs have ended, however they ended."""

import asyncio
from typing import Any

import pytest

from perdure import App, Batch, BlockingContext, Fail, Handle, JobContext, Request, Status
from perdure.model.errors import IllegalTransition, InvalidInput
from tests.runtime.support import PATIENCE, check_every_job, chores, ended, reached, types, working


@pytest.fixture
def kinds(app: App) -> list[Batch]:
    """The kinds `part`, which fails for a negative number, and `last`, a callback; returns what callbacks have seen."""
    seen: list[Batch] = []

    @app.job
    async def part(ctx: JobContext, n: int) -> int:
        if n < 0:
            raise Fail("negative")
        return n

    @app.job
    async def last(ctx: JobContext, label: str) -> str:
        child = await ctx.spawn(part, 1)
        batch = await ctx.batch()
        seen.append(batch)
        await ctx.wait_for(child)
        assert await ctx.batch() == batch, "after it was parked too"
        return (
            f"{label}: {batch.completed} of {batch.total}, {len(batch.failed)} failed, {len(batch.cancelled)} cancelled"
        )

    @app.job
    def plain(ctx: BlockingContext) -> int:
        return ctx.batch().total

    return seen


def parts(*numbers: int, **options: Any) -> list[Request]:
    return [Request("part", n, options) for n in numbers]  # type: ignore[arg-type]  # options of enqueue


async def test_a_callback_comes_once_when_all_have_ended(app: App, kinds: list[Batch]) -> None:
    late = [Request("part", 3, {"queue": "elsewhere"}), Request("part", 4, {"delay": "1h"})]
    handle = await app.jobs.enqueue_batch([*parts(1, -2), *late], Request("last", "done"))
    batch = await app.jobs.batch(handle.id)
    assert (batch.id, batch.total, batch.pending) == (handle.id, 4, 4)
    job = await handle.get()
    assert (job.status, job.waits[0].kind) == (Status.PENDING, "child")
    async with working(app):
        first = [app.jobs.handle(one.id) for one in batch.jobs]
        await asyncio.gather(*(reached(h, Status.COMPLETED, Status.FAILED) for h in first[:2]))
        assert (await handle.status()) is Status.PENDING
        found = await app.jobs.explain(handle.id)
        assert "waits for children" in found.sentence, found.sentence
        assert found.details["children"][0]["waiting_for"] == 2
        await check_every_job(app)
        assert [finding async for finding in app.database.fsck() if not finding.note] == []
        await first[3].cancel()
        await first[2].cancel()
        assert await handle.result(timeout=PATIENCE) == "done: 1 of 4, 1 failed, 2 cancelled"
    assert len({*(batch.id for batch in kinds)}) == 1
    [seen] = dict.fromkeys(kinds)
    assert (seen.failed, seen.cancelled) == ((batch.jobs[1].id,), (batch.jobs[2].id, batch.jobs[3].id))
    assert seen.pending == 0
    log = types(await app.jobs.events(handle.id))
    assert log[:3] == ["job_created", "wait_started", "run_started"]
    assert log.count("job_completed") == 1
    assert [node.depth for node in await app.jobs.tree(handle.id)] == [0, 1, 1, 1, 1, 1]


async def test_a_rerun_of_a_callback_sees_the_same_batch(app: App, kinds: list[Batch]) -> None:
    async with working(app):
        handle = await app.jobs.enqueue_batch(parts(1, 2), Request("plain"))
        assert await handle.result(timeout=PATIENCE) == 2
        again = await app.jobs.rerun(handle.id)
        assert await again.result(timeout=PATIENCE) == 2
        assert (await app.jobs.batch(again.id)).id == handle.id
        other = await app.enqueue("last", "alone")
        assert (await ended(app, other)).status is Status.FAILED
    with pytest.raises(InvalidInput, match="is not the callback of a batch"):
        await app.jobs.batch(other.id)


async def test_cancelling_the_callback_cancels_its_jobs(app: App, kinds: list[Batch]) -> None:
    handle = await app.jobs.enqueue_batch(parts(1, 2, 3, delay="1h"), Request("last", "x"))
    await handle.cancel()
    await chores(app)
    assert len((await app.jobs.batch(handle.id)).cancelled) == 3
    assert (await handle.get()).waits == ()
    await check_every_job(app)


async def test_a_key_makes_one_batch(app: App, kinds: list[Batch]) -> None:
    callback = Request("last", "x", {"idempotency_key": "night"})
    one = await app.jobs.enqueue_batch(parts(1, 2), callback)
    other = await app.jobs.enqueue_batch(parts(3), callback)
    assert (other.id, other.created, one.created) == (one.id, False, True)
    assert sum((await app.jobs.count()).values()) == 3


async def test_ends_at_the_same_time_wake_it_once(app: App, kinds: list[Batch]) -> None:
    """A few hundred jobs, whose ends share commits or not."""
    async with working(app, concurrency=20):
        handles: list[Handle[Any]] = [
            await app.jobs.enqueue_batch(parts(*range(n)), Request("plain")) for n in (1, 2, 30, 200)
        ]
        results = await asyncio.gather(*(handle.result(timeout=PATIENCE) for handle in handles))
    assert results == [1, 2, 30, 200]
    for handle in handles:
        assert types(await app.jobs.events(handle.id)).count("run_started") == 1
    await check_every_job(app)


async def test_what_is_refused(app: App, kinds: list[Batch]) -> None:
    wrong: list[tuple[list[Request], Request]] = [
        ([], Request("last", "x")),
        (parts(1, idempotency_key="k"), Request("last", "x")),
        (parts(1, unique="k"), Request("last", "x")),
        (parts(1), Request("last", "x", {"delay": 5})),
        (parts(1), Request("last", "x", {"unique": "k"})),
    ]
    for requests, callback in wrong:
        with pytest.raises(InvalidInput):
            await app.jobs.enqueue_batch(requests, callback)
    assert await app.jobs.count() == {}


async def test_nothing_starts_the_callback_before_all_have_ended(app: App, kinds: list[Batch]) -> None:
    """Neither a retry now nor another time, of one job or of many."""
    handle = await app.jobs.enqueue_batch(parts(1, 2, delay="1h"), Request("plain"))
    jobs = [app.jobs.handle(one.id) for one in (await app.jobs.batch(handle.id)).jobs]
    for call in (
        lambda: app.jobs.retry_now(handle.id),
        lambda: app.jobs.edit(handle.id, delay=0),
        lambda: app.jobs.edit(handle.id, delay="1h"),
    ):
        with pytest.raises(IllegalTransition, match="is the callback of a batch: it starts when all jobs"):
            await call()
    assert (await app.jobs.retry_many(status="PENDING")).done == 2
    assert (await app.jobs.edit_many(delay="1h", kind=["part", "plain"])).done == 2
    assert (await app.jobs.edit(handle.id, priority=9)).priority == 9
    assert types(await handle.events()) == ["job_created", "wait_started", "job_edited"]
    for job in jobs:
        await app.jobs.retry_now(job.id)
    async with working(app):
        assert await handle.result(timeout=PATIENCE) == 2
        forked = await app.jobs.fork(handle.id)
        assert await forked.result(timeout=PATIENCE) == 2, "a fork sees the same batch, as a rerun does"
