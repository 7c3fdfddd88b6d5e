"""Durable steps: of long jobs, and of many short ones, also with Absurd."""

import gc
import time

from bench.checks import check
from bench.meter import metered
from bench.peers import absurd
from bench.targets import Target
from bench.workloads.common import Figures, Sizes, Workload, ended, once_each, opened, working
from perdure import Request

SHORT_JOBS, SHORT_STEPS = 500, 10


def steps_of(jobs: int, each: int) -> Workload:
    """Steps of an async function, each durable before the next begins, in so many concurrent jobs; from the start of the
    first handler to the end of the last."""
    name = f"steps_{jobs}"

    async def run(target: Target, sizes: Sizes) -> Figures:
        steps = round(each * sizes.part)
        async with target.fresh() as url, opened(url) as bench:
            await bench.app.enqueue_many(Request(bench.make_steps, steps) for _ in range(jobs))
            gc.collect()
            async with metered(target, url) as meter, working(bench, concurrency=max(jobs, 100)):
                await bench.counter.reach(jobs)
                await ended(bench, "make_steps")
            once_each(bench.counter.ran, jobs)
            await check(target, url, "make_steps", status="COMPLETED", jobs=jobs, events=3 + steps)
        rate = jobs * steps / (bench.counter.last - bench.counter.first)
        return {**meter.figures(name, jobs * steps), name: rate}

    return run


def short_steps_of(concurrency: int) -> Workload:
    """500 jobs of 10 steps each, so many at a time, from the start of the worker until no job is unfinished."""
    name = f"short_steps_{concurrency}"

    async def run(target: Target, sizes: Sizes) -> Figures:
        jobs = max(1, round(SHORT_JOBS * sizes.part))
        steps = jobs * SHORT_STEPS
        async with target.fresh() as url, opened(url) as bench:
            await bench.app.enqueue_many(Request(bench.make_steps, SHORT_STEPS) for _ in range(jobs))
            gc.collect()
            async with metered(target, url) as meter:
                t = time.perf_counter()
                async with working(bench, concurrency=concurrency):
                    await bench.counter.reach(jobs)
                    await ended(bench, "make_steps")
                    took = time.perf_counter() - t
            once_each(bench.counter.ran, jobs)
            await check(target, url, "make_steps", status="COMPLETED", jobs=jobs, events=3 + SHORT_STEPS)
        figures = {**meter.figures(name, steps), name: steps / took}
        if sizes.peers and target.name == "postgres":
            peer = await absurd.steps(target, jobs, SHORT_STEPS, concurrency)
            figures |= {f"{name}.absurd": peer, f"{name}/absurd": steps / took / peer}
        return figures

    return run
