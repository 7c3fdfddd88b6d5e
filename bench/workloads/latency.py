"""How long single operations take: pick-up, claims, heartbeats."""

import asyncio
import random
import time

from bench.checks import Incorrect, check
from bench.fill import fill
from bench.handlers import PAYLOAD
from bench.targets import Target
from bench.workloads.common import Figures, Sizes, Workload, drained, opened, percentile, processes
from perdure import Request, Status
from perdure.model.jobs import Lease, Outcome

FAST_PICKUPS = 3.0  # seconds of 100 or 1,000 enqueues a second


def pickup_at(rate: int) -> Workload:
    """From the call of enqueue to the first line of the handler, in another, idle process; so many enqueues a second, each made
    at its time whether or not those before it are done."""
    name = f"pickup_{rate}"

    async def run(target: Target, sizes: Sizes) -> Figures:
        number = max(2, round(rate * (sizes.seconds if rate == 1 else FAST_PICKUPS * sizes.part)))
        async with target.fresh() as url, opened(url) as bench, processes(url) as workers:
            workers.go()
            for _ in range(10):  # statements and handler are used once; 0 = not counted
                await (await bench.app.enqueue(bench.pickup, 0)).result(timeout=60)

            async def enqueue() -> None:
                await bench.app.enqueue(bench.pickup, time.monotonic_ns())

            start, calls = time.perf_counter(), []
            for n in range(number):
                due = start + (n + random.random()) / rate  # anywhere in its slot: the worker's poll has a rhythm too
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                calls.append(asyncio.create_task(enqueue()))
            took = time.perf_counter() - start
            await asyncio.gather(*calls)
            await drained(target, url)
            (report,) = await workers.stop()
            if len(report.pickups) != number:
                raise Incorrect(f"{len(report.pickups)} of {number} jobs were picked up")
            await check(target, url, "pickup", status="COMPLETED", jobs=number + 10, events=3)
        return {
            f"{name}.p50": percentile(report.pickups, 0.5),
            f"{name}.p99": percentile(report.pickups, 0.99),
            f"{name}.enqueues": number / took,
        }

    return run


async def claim_10(target: Target, sizes: Sizes) -> Figures:
    """claim(limit=10) in an empty database, and in one with many finished, delayed and parked jobs."""
    empty = await _claims(target, sizes, 0)
    full = await _claims(target, sizes, sizes.scale)
    return {
        "claim_10.p50": percentile(full, 0.5),
        "claim_10.p99": percentile(full, 0.99),
        "claim_10.empty_p99": percentile(empty, 0.99),
        "claim_10.full/empty": percentile(full, 0.5) / percentile(empty, 0.5),
        "claim_10.full/empty_p99": percentile(full, 0.99) / percentile(empty, 0.99),
    }


async def _claims(target: Target, sizes: Sizes, scale: float) -> list[float]:
    times = []
    async with target.fresh() as url, opened(url) as bench:
        await fill(target, url, scale)
        store = await bench.app.open()
        await bench.app.enqueue_many(Request(bench.noop, PAYLOAD) for _ in range((sizes.samples + 10) * 10))
        done = Outcome(Status.COMPLETED, result="1")
        for n in range(sizes.samples + 10):
            t = time.perf_counter()
            claimed = await store.leases.claim(
                worker_id="w-bench", queue="default", kinds={"noop": 3}, limit=10, ttl=60
            )
            if n >= 10:
                times.append((time.perf_counter() - t) * 1000)
            if len(claimed) != 10 or {c.kind for c in claimed} != {"noop"}:
                raise Incorrect(f"claim(10) gave {[c.kind for c in claimed]}")
            await asyncio.gather(*(store.leases.finish(c.lease, done) for c in claimed))
        await check(target, url, "noop", status="COMPLETED", jobs=(sizes.samples + 10) * 10, events=3)
    return times


async def heartbeat_10k(target: Target, sizes: Sizes) -> Figures:
    """One heartbeat of ten thousand leases."""
    number, ttl = round(10_000 * sizes.part), 60.0
    async with target.fresh() as url, opened(url) as bench:
        store = await bench.app.open()
        await bench.app.enqueue_many(Request(bench.noop, PAYLOAD) for _ in range(number))
        leases: list[Lease] = []
        while claimed := await store.leases.claim(
            worker_id="w-bench", queue="default", kinds={"noop": 3}, limit=500, ttl=ttl
        ):
            leases += [job.lease for job in claimed]
        times = []
        for n in range(max(4, round(100 * sizes.part)) + 2):
            t = time.perf_counter()
            kept = await store.leases.heartbeat(leases, ttl=ttl)
            if n >= 2:
                times.append((time.perf_counter() - t) * 1000)
            if len(kept) != number:
                raise Incorrect(f"a heartbeat of {number} leases renewed {len(kept)}")
        done = Outcome(Status.COMPLETED, result="1")
        await asyncio.gather(*(store.leases.finish(lease, done) for lease in leases))
        await check(target, url, "noop", status="COMPLETED", jobs=number, events=3)
    return {"heartbeat_10k.p50": percentile(times, 0.5), "heartbeat_10k.p99": percentile(times, 0.99)}
