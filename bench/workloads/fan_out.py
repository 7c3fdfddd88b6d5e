"""Children: a fan-out and its join, and how long a child or a signal takes to wake a parked job."""

import asyncio
import time

from bench.checks import Incorrect
from bench.targets import Target
from bench.workloads.common import Figures, Sizes, opened, percentile, working
from perdure import Handle, JobContext, Status

CHILDREN = 10_000
WAKES = 200


async def fan_out(target: Target, sizes: Sizes) -> Figures:
    """Children a second, from the enqueue of the parent to its end, and how often it was woken; milliseconds from the end of a
    child, or the call of signal, to the code behind the wait. The worker is in this process, and parks at once."""
    children, wakes = round(CHILDREN * sizes.part), max(5, round(WAKES * sizes.part))
    by_child: list[float] = []
    by_signal: list[float] = []
    ended = 0
    async with target.fresh() as url, opened(url) as bench:
        app = bench.app

        @app.job
        async def leaf(ctx: JobContext, number: int) -> int:
            nonlocal ended
            ended = time.monotonic_ns()
            return number

        @app.job
        async def parent(ctx: JobContext, number: int) -> int:
            spawned = await asyncio.gather(*(ctx.spawn(leaf, n, key=str(n)) for n in range(number)))
            return sum(await ctx.gather(*spawned))

        @app.job
        async def single(ctx: JobContext) -> None:
            await ctx.wait_for(await ctx.spawn(leaf, 1))
            by_child.append((time.monotonic_ns() - ended) / 1e6)

        @app.job
        async def signalled(ctx: JobContext) -> None:
            sent = await ctx.wait_signal("go", int)
            by_signal.append((time.monotonic_ns() - sent) / 1e6)

        async with working(bench, linger=0):
            began = time.perf_counter()
            handle = await app.enqueue(parent, children)
            if await handle.result(timeout=300) != sum(range(children)):
                raise Incorrect("the results of the children are others")
            seconds = time.perf_counter() - began
            runs = [event for event in await app.jobs.events(handle.id) if event.type == "run_started"]
            for _ in range(wakes):
                await (await app.enqueue(single)).result(timeout=60)
                waiting = await app.enqueue(signalled)
                await _parked(waiting)
                await waiting.signal("go", time.monotonic_ns())
                await waiting.result(timeout=60)
    return {
        "fan_out": children / seconds,
        "fan_out.wakes": len(runs) - 1,
        "wake_child.p50": percentile(by_child, 0.5),
        "wake_child.p99": percentile(by_child, 0.99),
        "wake_signal.p50": percentile(by_signal, 0.5),
        "wake_signal.p99": percentile(by_signal, 0.99),
    }


async def _parked(handle: Handle[None]) -> None:
    async for event in handle.watch():
        if event.new_status is Status.PARKED:
            return
