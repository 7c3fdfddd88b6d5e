"""Enqueues: in bulk, one after the other, from many tasks, and while workers drain."""

import asyncio
import time

from bench.checks import check
from bench.handlers import PAYLOAD
from bench.meter import metered
from bench.targets import Target
from bench.workloads.common import Figures, Sizes, drained, once_each, opened, percentile, processes
from perdure import Request


async def enqueue_bulk(target: Target, sizes: Sizes) -> Figures:
    """One enqueue_many of all jobs."""
    async with target.fresh() as url, opened(url) as bench:
        async with metered(target, url) as meter:
            t = time.perf_counter()
            await bench.app.enqueue_many(Request(bench.noop, PAYLOAD) for _ in range(sizes.jobs))
            took = time.perf_counter() - t
        await check(target, url, "noop", status="PENDING", jobs=sizes.jobs, events=1)
    return {**meter.figures("enqueue_bulk", sizes.jobs), "enqueue_bulk": sizes.jobs / took}


async def enqueue_1(target: Target, sizes: Sizes) -> Figures:
    """One enqueue after the other."""
    return {"enqueue_1": await _enqueue_singly(target, tasks=1, each=round(1500 * sizes.part))}


async def enqueue_32(target: Target, sizes: Sizes) -> Figures:
    """The same from 32 tasks at once."""
    return {"enqueue_32": await _enqueue_singly(target, tasks=32, each=round(400 * sizes.part))}


async def _enqueue_singly(target: Target, *, tasks: int, each: int) -> float:
    async with target.fresh() as url, opened(url) as bench:

        async def some() -> None:
            for _ in range(each):
                await bench.app.enqueue(bench.noop, PAYLOAD)

        t = time.perf_counter()
        await asyncio.gather(*(some() for _ in range(tasks)))
        took = time.perf_counter() - t
        await check(target, url, "noop", status="PENDING", jobs=tasks * each, events=1)
    return tasks * each / took


async def write_4(target: Target, sizes: Sizes) -> Figures:
    """A write of another process while four workers drain: single enqueues into a queue that has no worker."""
    async with target.fresh() as url, opened(url) as bench, processes(url, 4) as workers:
        await bench.app.enqueue_many(Request(bench.noop, PAYLOAD) for _ in range(sizes.jobs))
        workers.go()
        draining = asyncio.create_task(drained(target, url))
        times = []
        while not draining.done():
            t = time.perf_counter()
            await bench.app.enqueue(bench.pickup, 0, queue="elsewhere")
            times.append((time.perf_counter() - t) * 1000)
        await draining
        once_each(sum(report.ran for report in await workers.stop()), sizes.jobs)
        await check(target, url, "noop", status="COMPLETED", jobs=sizes.jobs, events=3)
        await check(target, url, "pickup", status="PENDING", jobs=len(times), events=1)
    return {"write_4.p50": percentile(times, 0.5), "write_4.p99": percentile(times, 0.99)}
