"""What the workloads share: how much is measured, an open App, a worker in this process."""

import asyncio
import gc
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from bench.checks import Incorrect
from bench.handlers import PAYLOAD, RESULT, BenchApp, bench_app
from bench.processes import Workers, perdure_worker
from bench.targets import Target
from perdure import Request, Status
from perdure.runtime.gc_tuning import tuned_for_worker

Figures = dict[str, float]
"""By name: `workload` or `workload.part`."""
TIMEOUT = 600.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured; `--quick` makes it little."""

    jobs: int = 20_000
    """Of a bulk enqueue and of a drain."""
    peer_jobs: int = 10_000
    """Of a drain that is compared with a peer's."""
    seconds: float = 60.0
    """Of the sustained workload, and of enqueues at one a second."""
    scale: float = 0.1
    """Of 1,000,000 finished, 100,000 delayed and 100,000 parked jobs."""
    samples: int = 300
    """Of single claims."""
    part: float = 1.0
    """Of the fixed numbers of jobs and steps of the other workloads."""
    peers: bool = False
    """Also measure the peers that are not measured by default."""


Workload = Callable[[Target, Sizes], Awaitable[Figures]]


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[BenchApp]:
    """The App on this database, connected; with statements and handlers used once (by jobs of other kinds)."""
    bench = bench_app(url)
    async with bench.app:

        @bench.app.job(name="warm")
        async def warm(ctx: Any, payload: dict[str, Any]) -> dict[str, Any]:
            return await ctx.step("warm", _result)  # type: ignore[no-any-return]  # ctx is Any here

        await bench.app.enqueue(warm, PAYLOAD)
        await bench.app.enqueue_many(Request(warm, PAYLOAD) for _ in range(20))
        await bench.app.work(once=True)
        gc.collect()
        yield bench


async def _result() -> dict[str, Any]:
    return RESULT


@asynccontextmanager
async def working(bench: BenchApp, **options: Any) -> AsyncIterator[None]:
    """A worker in this process, with the interpreter set up as `perdure worker start` does it."""
    worker = await bench.app.worker(**options)
    with tuned_for_worker():
        task = asyncio.create_task(worker.run())
        try:
            yield
        finally:
            worker.stop()
            await task


def processes(url: str, number: int = 1) -> AbstractAsyncContextManager[Workers]:
    """Worker processes with default options."""
    return Workers.started(perdure_worker(url), number)


async def ended(bench: BenchApp, kind: str) -> None:
    """Wait until the store says that no job of the kind is unfinished; called when their handlers have run. How they ended is
    checked after the clock: a worker does not have to count 20,000 ends."""
    deadline = time.monotonic() + 60
    unfinished = [status for status in Status if not status.terminal]
    while left := await bench.app.jobs.count(by="status", kind=kind, status=unfinished):
        if time.monotonic() > deadline:
            raise Incorrect(f"{kind}: after 60 s of waiting there are still {left}")
        await asyncio.sleep(0.002)


def unfinished(target: Target) -> str:
    """A SELECT whether a job waits in the default queue or runs; it reads as little as possible."""
    p = target.prefix
    return f"select exists (select 1 from {p}job_queue where lane = 'default') or exists (select 1 from {p}job_claims)"


async def drained(target: Target, url: str) -> None:
    """Wait until no job of the default queue waits or runs. Asks seldom, so that it costs the workers nothing."""
    deadline = time.monotonic() + TIMEOUT
    while (await target.sql(url, unfinished(target)))[0]:
        if time.monotonic() > deadline:
            raise Incorrect("the workers did not finish")
        await asyncio.sleep(0.2)


def once_each(ran: int, jobs: int) -> None:
    """Raises Incorrect if handlers did not run as often as there are jobs."""
    if ran != jobs:
        raise Incorrect(f"handlers ran {ran} times for {jobs} jobs")


def percentile(values: list[float], share: float) -> float:
    """The smallest value that `share` of all values do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
