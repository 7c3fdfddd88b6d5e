"""Limits at work: handlers with a maximum, keys of the input, and slots that are used again at once."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from perdure import App, InvalidInput, JobContext, Request, Retry
from tests.runtime.support import NOW, PATIENCE, working


class Running:
    """Counts how many jobs of each key run, and the most at a time."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    async def run(self, key: str) -> None:
        """Run for a moment."""
        self.now[key] += 1
        self.most[key] = max(self.most[key], self.now[key])
        await asyncio.sleep(0.005)
        self.now[key] -= 1


async def test_a_handler_with_a_maximum_runs_that_many_jobs_in_all_workers_together(app: App) -> None:
    running = Running()

    @app.job(max_concurrent=2)
    async def slow(ctx: JobContext, n: int) -> int:
        await running.run("slow")
        return n

    @app.job
    async def free(ctx: JobContext, n: int) -> int:
        await running.run("free")
        return n

    requests = [Request(job, n) for n in range(12) for job in (slow, free)]
    handles = await app.enqueue_many(requests)
    assert (await handles[0].get()).concurrency_key == "slow"
    assert (await handles[1].get()).concurrency_key is None
    async with working(app), working(app):
        assert [await handle.result(PATIENCE) for handle in handles] == [n for n in range(12) for _ in range(2)]
    assert running.most["slow"] == 2
    assert running.most["free"] > 2


async def test_a_key_is_made_of_the_input_or_given_by_the_caller(app: App) -> None:
    running = Running()

    @app.job(
        concurrency_key=lambda order: f"customer:{order['customer']}" if order["customer"] else None, max_concurrent=1
    )
    async def ship(ctx: JobContext, order: dict[str, Any]) -> None:
        await running.run(str(order["customer"]))

    handles = await app.enqueue_many([Request(ship, {"customer": n % 3}) for n in range(12)])
    keys = [(await handle.get()).concurrency_key for handle in handles[:3]]
    assert keys == [None, "customer:1", "customer:2"]
    by_hand = await app.enqueue(ship, {"customer": 1}, concurrency_key="vip", max_concurrent=3)
    job = await by_hand.get()
    assert (job.concurrency_key, job.max_concurrent) == ("vip", 3)
    async with working(app):
        for handle in (*handles, by_hand):
            await handle.result(PATIENCE)
    assert running.most["2"] == 1
    assert running.most["1"] <= 2
    assert running.most["0"] > 1
    again = await app.jobs.rerun(by_hand.id)
    assert ((await again.get()).concurrency_key, (await again.get()).max_concurrent) == ("vip", 3)


async def test_a_job_that_tries_again_waits_for_a_slot_again(app: App) -> None:
    running = Running()
    failed: set[int] = set()

    @app.job(max_concurrent=1, backoff=NOW)
    async def flaky(ctx: JobContext, n: int) -> int:
        await running.run("flaky")
        if n not in failed:
            failed.add(n)
            raise Retry(after=0)
        return n

    handles = await app.enqueue_many([Request(flaky, n) for n in range(5)])
    async with working(app):
        assert [await handle.result(PATIENCE) for handle in handles] == list(range(5))
    assert running.most["flaky"] == 1


async def test_jobs_enqueued_by_name_have_the_limit_of_the_worker(app: App) -> None:
    running = Running()
    handles = [await app.enqueue("named", n, elsewhere=True) for n in range(6)]

    @app.job(max_concurrent=1)
    async def named(ctx: JobContext, n: int) -> int:
        await running.run("named")
        return n

    async with working(app):
        assert [await handle.result(PATIENCE) for handle in handles] == list(range(6))
    assert running.most["named"] == 1
    assert (await handles[0].get()).concurrency_key == "named"


async def test_bad_limits_are_refused(app: App) -> None:
    @app.job
    async def plain(ctx: JobContext) -> None: ...

    @app.job(concurrency_key=lambda _: "", max_concurrent=1)
    async def empty(ctx: JobContext, n: int) -> None: ...

    for wrong in ("", "x" * 201, "a\nb"):
        with pytest.raises(InvalidInput, match="concurrency_key must be text of 1 to 200 printable characters"):
            await app.enqueue("plain", concurrency_key=wrong)
    for number in (0, -1, True, 1.5, "2"):
        with pytest.raises(InvalidInput, match="max_concurrent must be a whole number from 1"):
            await app.enqueue("plain", concurrency_key="k", max_concurrent=number)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(InvalidInput, match="max_concurrent needs a concurrency_key"):
        await app.enqueue(plain, max_concurrent=2)
    with pytest.raises(InvalidInput, match="concurrency_key must be text"):
        await app.enqueue(empty, 1)
    with pytest.raises(InvalidInput, match="max_concurrent must be"):

        @app.job(max_concurrent=0)
        async def none_at_all(ctx: JobContext) -> None: ...

    assert await app.jobs.count() == {}
