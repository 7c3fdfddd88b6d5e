"""What a claim costs while many jobs wait for slots of full concurrency keys."""

import asyncio
import time

from bench.checks import Incorrect, check
from bench.handlers import PAYLOAD, BenchApp
from bench.targets import Target
from bench.workloads.common import Figures, Sizes, opened, percentile
from perdure import Request, Status
from perdure.model.jobs import Outcome
from perdure.store.protocol import Store

KEYS = 10_000
WAITING = 100_000
PORTION = 10_000
"""Jobs of one enqueue."""
KINDS = {"noop": 3, "limited": 3}


async def claim_keys(target: Target, sizes: Sizes) -> Figures:
    """claim(limit=10) of jobs without a key, in a database without others and where all keys are full and many jobs wait."""
    empty = await _claims(target, sizes, 0, 0)
    full = await _claims(target, sizes, round(KEYS * sizes.part), round(WAITING * sizes.part))
    return {
        "claim_keys.p50": percentile(full, 0.5),
        "claim_keys.p99": percentile(full, 0.99),
        "claim_keys.full/empty": percentile(full, 0.5) / percentile(empty, 0.5),
    }


async def _claims(target: Target, sizes: Sizes, keys: int, waiting: int) -> list[float]:
    times = []
    async with target.fresh() as url, opened(url) as bench:
        store = await bench.app.open()
        await _fill(bench, store, keys, waiting)
        if target.name == "postgres":
            for table in ("jobs", "job_events", "job_queue", "job_claims"):  # autovacuum would do this later
                await target.sql(url, f"vacuum (analyze) perdure.{table}")
        await bench.app.enqueue_many(Request(bench.noop, PAYLOAD) for _ in range((sizes.samples + 10) * 10))
        done = Outcome(Status.COMPLETED, result="1")
        for n in range(sizes.samples + 10):
            t = time.perf_counter()
            claimed = await store.leases.claim(worker_id="w-bench", queue="default", kinds=KINDS, limit=10, ttl=60)
            if n >= 10:
                times.append((time.perf_counter() - t) * 1000)
            if len(claimed) != 10 or {c.kind for c in claimed} != {"noop"}:
                raise Incorrect(f"claim(10) gave {[c.kind for c in claimed]}")
            await asyncio.gather(*(store.leases.finish(c.lease, done) for c in claimed))
        await check(target, url, "noop", status="COMPLETED", jobs=(sizes.samples + 10) * 10, events=3)
    return times


async def _fill(bench: BenchApp, store: Store, keys: int, waiting: int) -> None:
    """One job of each key runs, and the others wait for its slot."""
    for first in range(0, keys + waiting, PORTION):
        numbers = range(first, min(first + PORTION, keys + waiting))
        await bench.app.enqueue_many(
            Request("limited", PAYLOAD, {"elsewhere": True, "concurrency_key": f"key {n % keys}", "max_concurrent": 1})
            for n in numbers
        )
    leased = 0
    while claimed := await store.leases.claim(
        worker_id="w-bench", queue="default", kinds={"limited": 3}, limit=500, ttl=3600
    ):
        leased += len(claimed)
    if leased != keys:
        raise Incorrect(f"{leased} jobs of {keys} keys run")
