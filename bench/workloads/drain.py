"""Jobs that do nothing, run by one or more worker processes, alone and while another process counts them."""

import asyncio
import gc
import time
from contextlib import suppress

from bench.checks import Incorrect, check
from bench.handlers import PAYLOAD
from bench.meter import cpu_figures, metered
from bench.processes import Drained, drain_by
from bench.targets import Target
from bench.workloads.common import (
    Figures,
    Sizes,
    Workload,
    ended,
    once_each,
    opened,
    percentile,
    processes,
    unfinished,
    working,
)
from perdure import Request

BACKLOG = 50_000


async def drain(target: Target, sizes: Sizes) -> Figures:
    """A worker in this process, with default options, from its start until the store says that no job is unfinished."""
    async with target.fresh() as url, opened(url) as bench:
        await bench.app.enqueue_many(Request(bench.noop, PAYLOAD) for _ in range(sizes.jobs))
        gc.collect()
        async with metered(target, url) as meter:
            t = time.perf_counter()
            async with working(bench):
                await bench.counter.reach(sizes.jobs)
                await ended(bench, "noop")
                took = time.perf_counter() - t
        once_each(bench.counter.ran, sizes.jobs)
        await check(target, url, "noop", status="COMPLETED", jobs=sizes.jobs, events=3)
    return {**meter.figures("drain", sizes.jobs), "drain": sizes.jobs / took}


async def drain_processes(target: Target, jobs: int, number: int, kind: str = "noop") -> Drained:
    """Jobs that wait already, by so many worker processes."""
    async with target.fresh() as url, opened(url) as bench, processes(url, number) as workers:
        handler = {"noop": bench.noop, "discard": bench.discard}[kind]
        await bench.app.enqueue_many(Request(handler, PAYLOAD) for _ in range(jobs))
        await target.settle(url)
        async with target.connected(url) as first_row:

            async def left() -> bool:
                return bool((await first_row(unfinished(target)))[0])

            result = await drain_by(target, workers, jobs, left)
        await check(target, url, kind, status="COMPLETED", jobs=jobs, events=3)
    return result


async def drain_2(target: Target, sizes: Sizes) -> Figures:
    """The drain by one and by two worker processes. `idle_cores`: how many the drain by one leaves idle."""
    one = await drain_processes(target, sizes.jobs, 1)
    two = await drain_processes(target, sizes.jobs, 2)
    figures = _drain_figures("drain_2", sizes.jobs, two)
    figures["drain_2/drain_1"] = one.seconds / two.seconds
    if one.idle_cores is not None:
        figures["drain_2.idle_cores"] = one.idle_cores
    return figures


async def drain_4(target: Target, sizes: Sizes) -> Figures:
    """The drain by four worker processes."""
    return _drain_figures("drain_4", sizes.jobs, await drain_processes(target, sizes.jobs, 4))


def _drain_figures(name: str, jobs: int, drained: Drained) -> Figures:
    slowest = min(report.ran for report in drained.reports)
    return {
        **cpu_figures(f"{name}.", drained.client, drained.server, jobs),
        name: jobs / drained.seconds,
        f"{name}.slowest/mean": slowest / (jobs / len(drained.reports)),
    }


def count_every(seconds: float) -> Workload:
    """A drain while this process counts the jobs that wait, again and again, and a drain without counts. About 50,000 jobs of the
    queue still wait when it ends."""

    async def run(target: Target, sizes: Sizes) -> Figures:
        alone, _ = await _drain_of_backlog(target, sizes, None)
        counted, times = await _drain_of_backlog(target, sizes, seconds)
        return {
            "count_beside_drain.alone": alone,
            "count_beside_drain.counted": counted,
            "count_beside_drain/alone": counted / alone,
            "count_beside_drain.p50": percentile(times, 0.5),
        }

    return run


async def _drain_of_backlog(target: Target, sizes: Sizes, every: float | None) -> tuple[float, list[float]]:
    """Jobs a second of one worker process, and the milliseconds of each count."""
    backlog, times = round(BACKLOG * sizes.part), []
    total = backlog + sizes.jobs
    async with target.fresh() as url, opened(url) as bench, processes(url) as workers:

        async def count() -> None:
            assert every is not None
            while True:
                t = time.perf_counter()
                found = await bench.app.jobs.count(status="PENDING")
                times.append((time.perf_counter() - t) * 1000)
                if not 0 < sum(found.values()) <= total:
                    raise Incorrect(f"counted {found}, of {total} jobs at first, while workers drain them")
                await asyncio.sleep(every)

        await bench.app.enqueue_many(Request(bench.noop, PAYLOAD) for _ in range(total))
        workers.go()
        await workers.reached(1)
        counting = asyncio.create_task(count()) if every is not None else None
        t, ran = time.perf_counter(), workers.ran
        await workers.reached(sizes.jobs)
        rate = (workers.ran - ran) / (time.perf_counter() - t)
        if counting is not None:
            counting.cancel()
            with suppress(asyncio.CancelledError):
                await counting
        (report,) = await workers.stop()
        (completed,) = await target.sql(
            url, f"select count(*) from {target.prefix}jobs where kind = 'noop' and status = 'COMPLETED'"
        )
        once_each(report.ran, completed)
    return rate, times
