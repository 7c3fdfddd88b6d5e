"""Children: a fan-out and its join."""

import asyncio
import time

from bench.checks import Incorrect
from bench.targets import Target
from bench.workloads.common import Figures, Sizes, ended, opened, working
from perdure import JobContext

CHILDREN = 10_000


async def fan_out(target: Target, sizes: Sizes) -> Figures:
    """Children a second, from the enqueue of the parent to its end, and how often it was woken. `/jobs` compares them with as
    many jobs of the same handler that are enqueued one by one, at once, without a parent. The worker is in this process and parks
    at once."""
    children = round(CHILDREN * sizes.part)
    with_parent, wakes = await _children(target, children)
    alone = await _jobs(target, children)
    return {
        "fan_out": children / with_parent,
        "fan_out.seconds": with_parent,
        "fan_out.wakes": wakes,
        "fan_out/jobs": alone / with_parent,
    }


async def _children(target: Target, children: int) -> tuple[float, int]:
    """Seconds, and how often the parent was woken."""
    async with target.fresh() as url, opened(url) as bench:
        app = bench.app

        @app.job
        async def leaf(ctx: JobContext, number: int) -> int:
            return number

        @app.job
        async def parent(ctx: JobContext, number: int) -> int:
            spawned = await asyncio.gather(*(ctx.spawn(leaf, n, key=str(n)) for n in range(number)))
            return sum(await ctx.gather(*spawned))

        async with working(bench, linger=0):
            began = time.perf_counter()
            handle = await app.enqueue(parent, children)
            if await handle.result(timeout=300) != sum(range(children)):
                raise Incorrect("the results of the children are others")
            seconds = time.perf_counter() - began
        runs = [event for event in await app.jobs.events(handle.id) if event.type == "run_started"]
    return seconds, len(runs) - 1


async def _jobs(target: Target, jobs: int) -> float:
    """Seconds of the same jobs without a parent."""
    done = asyncio.Event()
    numbers: set[int] = set()
    async with target.fresh() as url, opened(url) as bench:

        @bench.app.job
        async def leaf(ctx: JobContext, number: int) -> int:
            numbers.add(number)
            if len(numbers) == jobs:
                done.set()
            return number

        async with working(bench, linger=0):
            began = time.perf_counter()
            await asyncio.gather(*(bench.app.enqueue(leaf, n) for n in range(jobs)))
            async with asyncio.timeout(300):
                await done.wait()
            await ended(bench, "leaf")
            return time.perf_counter() - began
