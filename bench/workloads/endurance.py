"""What shows only after a while: memory, and the rate over a minute."""

import asyncio
import itertools
import time

from bench.checks import check
from bench.handlers import PAYLOAD
from bench.targets import Target
from bench.workloads.common import Figures, Sizes, drained, ended, once_each, opened, processes, working
from perdure import Request


async def memory(target: Target, sizes: Sizes) -> Figures:
    """A worker process: resident when it has nothing to do, and at most while it drains."""
    async with target.fresh() as url, opened(url) as bench, processes(url) as workers:
        workers.go()
        await asyncio.sleep(2)
        idle = workers.memory("VmRSS")
        workers.reset_peak()
        await bench.app.enqueue_many(Request(bench.noop, PAYLOAD) for _ in range(sizes.jobs))
        await drained(target, url)
        busy = workers.memory("VmHWM")
        await workers.stop()
        await check(target, url, "noop", status="COMPLETED", jobs=sizes.jobs, events=3)
    return {} if idle is None or busy is None else {"memory.idle": idle, "memory.busy": busy}


async def sustained(target: Target, sizes: Sizes) -> Figures:
    """Enqueue and drain at once, with a backlog of 5,000 jobs: the first sixth of the time compared with the last."""
    backlog, batch, window = 5000, 500, sizes.seconds / 6
    async with target.fresh() as url, opened(url) as bench:
        stored, going = 0, True

        async def produce() -> None:
            nonlocal stored
            while going:
                if stored - bench.counter.ran > backlog:
                    await asyncio.sleep(0.002)
                    continue
                await bench.app.enqueue_many(Request(bench.noop, PAYLOAD) for _ in range(batch))
                stored += batch

        async with working(bench):
            producing = asyncio.create_task(produce())
            await asyncio.sleep(min(1.0, window))
            marks = [(time.perf_counter(), bench.counter.ran)]
            for _ in range(6):
                await asyncio.sleep(window)
                marks.append((time.perf_counter(), bench.counter.ran))
            going = False
            await producing
            await bench.counter.reach(stored)
            await ended(bench, "noop")
        once_each(bench.counter.ran, stored)
        await check(target, url, "noop", status="COMPLETED", jobs=stored, events=3)
    rates = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.pairwise(marks)]
    whole = (marks[-1][1] - marks[0][1]) / (marks[-1][0] - marks[0][0])
    return {"sustained": whole, "sustained.last/first": rates[-1] / rates[0] if rates[0] else 0.0}
