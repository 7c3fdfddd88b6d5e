"""What is measured, through the public API: App, handlers, ctx.step, Worker; the full audit is on. Each workload runs once
in a fresh database, checks what it left there, and returns its figures by name."""

import asyncio
import gc
import itertools
import math
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.checks import Incorrect, check
from bench.fill import fill
from bench.handlers import PAYLOAD, RESULT, Subject, subject
from bench.meter import metered
from bench.places import Place
from perdure import Request, Status
from perdure.model.jobs import Lease, Outcome
from perdure.runtime.gc_tuning import devoted

Figures = dict[str, float]
PATIENCE = 600.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything; `--quick` makes it little."""

    jobs: int = 20_000
    seconds: float = 60.0
    scale: float = 0.1
    samples: int = 300
    part: float = 1.0
    """Of the fixed numbers of sequential enqueues and steps."""


@asynccontextmanager
async def opened(url: str, *, warm: bool = True) -> AsyncIterator[Subject]:
    """The App on this database, connected; with statements and handlers used once (by jobs of other kinds)."""
    it = subject(url)
    async with it.app:
        if warm:

            @it.app.job(name="warm")
            async def warming(ctx: Any, payload: dict[str, Any]) -> dict[str, Any]:
                return await ctx.step("warm", _warm)  # type: ignore[no-any-return]

            await it.app.enqueue(warming, PAYLOAD)
            await it.app.enqueue_many(Request(warming, PAYLOAD) for _ in range(20))
            await it.app.work(once=True)
        gc.collect()
        yield it


async def _warm() -> dict[str, Any]:
    return RESULT


@asynccontextmanager
async def working(it: Subject, **options: Any) -> AsyncIterator[None]:
    """A worker in this process, which is a worker's for that time, as `perdure worker start` makes it."""
    worker = await it.app.worker(**options)
    with devoted():
        task = asyncio.create_task(worker.run())
        try:
            yield
        finally:
            worker.stop()
            await task


async def ended(it: Subject, kind: str) -> None:
    """Wait until the store says that no job of the kind is unfinished; called when their handlers have run. How they ended is
    checked after the clock: to count 20,000 ends is not what a worker has to do."""
    deadline = time.monotonic() + 60
    unfinished = [status for status in Status if not status.terminal]
    while left := await it.app.count(by="status", kind=kind, status=unfinished):
        if time.monotonic() > deadline:
            raise Incorrect(f"{kind}: after 60 s of waiting there are still {left}")
        await asyncio.sleep(0.002)


def percentile(values: list[float], share: float) -> float:
    """The smallest value that `share` of all values do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


# -- enqueue -----------------------------------------------------------------------------------------------------------


async def enqueue_bulk(place: Place, sizes: Sizes) -> Figures:
    """One enqueue_many of all jobs."""
    async with place.fresh() as url, opened(url) as it:
        async with metered(place, url) as meter:
            t = time.perf_counter()
            await it.app.enqueue_many(Request(it.noop, PAYLOAD) for _ in range(sizes.jobs))
            took = time.perf_counter() - t
        await check(place, url, "noop", status="PENDING", jobs=sizes.jobs, events=1)
    return {"enqueue_bulk": sizes.jobs / took, **meter.figures("enqueue_bulk", sizes.jobs)}


async def enqueue_1(place: Place, sizes: Sizes) -> Figures:
    """One enqueue after the other."""
    return {"enqueue_1": await _enqueue_singly(place, tasks=1, each=round(1500 * sizes.part))}


async def enqueue_32(place: Place, sizes: Sizes) -> Figures:
    """The same from 32 tasks at once."""
    return {"enqueue_32": await _enqueue_singly(place, tasks=32, each=round(400 * sizes.part))}


async def _enqueue_singly(place: Place, *, tasks: int, each: int) -> float:
    async with place.fresh() as url, opened(url) as it:

        async def some() -> None:
            for _ in range(each):
                await it.app.enqueue(it.noop, PAYLOAD)

        t = time.perf_counter()
        await asyncio.gather(*(some() for _ in range(tasks)))
        took = time.perf_counter() - t
        await check(place, url, "noop", status="PENDING", jobs=tasks * each, events=1)
    return tasks * each / took


# -- drain -------------------------------------------------------------------------------------------------------------


async def drain(place: Place, sizes: Sizes) -> Figures:
    """A worker with default options, from its start until the store says that none is unfinished."""
    async with place.fresh() as url, opened(url) as it:
        await it.app.enqueue_many(Request(it.noop, PAYLOAD) for _ in range(sizes.jobs))
        gc.collect()
        async with metered(place, url) as meter:
            t = time.perf_counter()
            async with working(it):
                await it.counted.reach(sizes.jobs)
                await ended(it, "noop")
                took = time.perf_counter() - t
        _once_each(it.counted.ran, sizes.jobs)
        await check(place, url, "noop", status="COMPLETED", jobs=sizes.jobs, events=3)
    return {"drain": sizes.jobs / took, **meter.figures("drain", sizes.jobs)}


def _once_each(ran: int, jobs: int) -> None:
    if ran != jobs:
        raise Incorrect(f"handlers ran {ran} times for {jobs} jobs")


class Workers:
    """Worker processes that wait for the word."""

    def __init__(self, processes: list[asyncio.subprocess.Process]) -> None:
        self._processes = processes
        self.ran: list[int] = []

    @classmethod
    @asynccontextmanager
    async def started(cls, url: str, number: int, concurrency: int = 100) -> AsyncIterator["Workers"]:
        command = (sys.executable, "-m", "bench.child", url, str(concurrency))
        pipe = asyncio.subprocess.PIPE
        processes = [await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe) for _ in range(number)]
        try:
            for process in processes:
                await _line_of(process)
            yield cls(processes)
        finally:
            for process in processes:
                if process.returncode is None:
                    process.kill()
                await process.wait()

    def memory(self, what: str) -> float | None:
        """MiB of the first one, by its name in /proc (VmRSS now, VmHWM at most so far); None where there is no /proc."""
        try:
            status = Path(f"/proc/{self._processes[0].pid}/status").read_text()
        except OSError:
            return None
        lines = dict(line.split(":", 1) for line in status.splitlines())
        return int(lines[what].split()[0]) / 1024 if what in lines else None

    def forget_peak(self) -> None:
        """Let VmHWM of the first one begin anew, where there is such a thing."""
        with suppress(OSError):
            Path(f"/proc/{self._processes[0].pid}/clear_refs").write_text("5")

    def go(self) -> None:
        """Start working."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(b"\n")

    async def stop(self) -> None:
        """Stop, and tell how often each ran a handler."""
        self.go()
        self.ran = [int(await _line_of(process)) for process in self._processes]
        for process in self._processes:
            await process.wait()


async def _line_of(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    async with asyncio.timeout(60):
        line = await process.stdout.readline()
    if not line:
        raise Incorrect("a worker process ended without a word")
    return line


def drain_by(number: int) -> Callable[[Place, Sizes], Awaitable[Figures]]:
    """The drain by several processes, timed by the database's clock: from just before the word to the last finish."""

    async def run(place: Place, sizes: Sizes) -> Figures:
        async with place.fresh() as url, opened(url) as it, Workers.started(url, number) as workers:
            await it.app.enqueue_many(Request(it.noop, PAYLOAD) for _ in range(sizes.jobs))
            began = await (await it.app.open()).now()
            workers.go()
            await _drained(place, url)
            await workers.stop()
            _once_each(sum(workers.ran), sizes.jobs)
            await check(place, url, "noop", status="COMPLETED", jobs=sizes.jobs, events=3)
            (last,) = await place.sql(url, f"select max(finished_at) from {place.prefix}jobs where kind = 'noop'")
        took = (last.timestamp() if isinstance(last, datetime) else last / 1e6) - began.timestamp()
        share = min(workers.ran) / (sizes.jobs / number)
        return {f"drain_{number}": sizes.jobs / took, f"drain_{number}.slowest/mean": share}

    return run


async def _drained(place: Place, url: str) -> None:
    """Until no job waits or runs; asked by plain SQL and seldom, for a list of thousands of live jobs costs more."""
    deadline, p = time.monotonic() + PATIENCE, place.prefix
    left = f"exists (select 1 from {p}job_queue where lane = 'default') or exists (select 1 from {p}job_claims)"
    while (await place.sql(url, f"select {left}"))[0]:
        if time.monotonic() > deadline:
            raise Incorrect("the workers did not finish")
        await asyncio.sleep(0.2)


async def write_4(place: Place, sizes: Sizes) -> Figures:
    """A write of another process while four workers drain: single enqueues into a queue that nobody serves."""
    async with place.fresh() as url, opened(url) as it, Workers.started(url, 4) as workers:
        await it.app.enqueue_many(Request(it.noop, PAYLOAD) for _ in range(sizes.jobs))
        workers.go()
        drained = asyncio.create_task(_drained(place, url))
        times = []
        while not drained.done():
            t = time.perf_counter()
            await it.app.enqueue(it.moment, queue="elsewhere")
            times.append((time.perf_counter() - t) * 1000)
        await drained
        await workers.stop()
        _once_each(sum(workers.ran), sizes.jobs)
        await check(place, url, "noop", status="COMPLETED", jobs=sizes.jobs, events=3)
        await check(place, url, "moment", status="PENDING", jobs=len(times), events=1)
    return {"write_4.p50": percentile(times, 0.5), "write_4.p99": percentile(times, 0.99)}


# -- durable steps -----------------------------------------------------------------------------------------------------


def steps_of(jobs: int, each: int) -> Callable[[Place, Sizes], Awaitable[Figures]]:
    """Steps of an async function, each durable before the next begins, in so many concurrent jobs; from the start of the
    first handler to the end of the last."""

    async def run(place: Place, sizes: Sizes) -> Figures:
        steps = round(each * sizes.part)
        async with place.fresh() as url, opened(url) as it:
            await it.app.enqueue_many(Request(it.climb, steps) for _ in range(jobs))
            gc.collect()
            async with metered(place, url) as meter, working(it, concurrency=max(jobs, 100)):
                await it.counted.reach(jobs)
                await ended(it, "climb")
            _once_each(it.counted.ran, jobs)
            await check(place, url, "climb", status="COMPLETED", jobs=jobs, events=3 + steps)
        rate = jobs * steps / (it.counted.last - it.counted.first)
        return {f"steps_{jobs}": rate, **meter.figures(f"steps_{jobs}", jobs * steps)}

    return run


# -- latency -----------------------------------------------------------------------------------------------------------


async def pickup(place: Place, sizes: Sizes) -> Figures:
    """From the call of enqueue to the first line of the handler, in another process that has nothing to do."""
    times = []
    async with place.fresh() as url, opened(url) as it, Workers.started(url, 1) as workers:
        workers.go()
        for n in range(sizes.samples + 10):
            await asyncio.sleep(random.uniform(0.02, 0.06))
            t = time.monotonic_ns()
            handle = await it.app.enqueue(it.moment)
            began = await handle.result(timeout=60)
            if n >= 10:
                times.append((began - t) / 1e6)
        await workers.stop()
        await check(place, url, "moment", status="COMPLETED", jobs=sizes.samples + 10, events=3)
    return {"pickup.p50": percentile(times, 0.5), "pickup.p99": percentile(times, 0.99)}


async def claim_10(place: Place, sizes: Sizes) -> Figures:
    """claim(limit=10) of an empty database, and of one with a long past."""
    empty = await _claims(place, sizes, 0)
    full = await _claims(place, sizes, sizes.scale)
    return {
        "claim_10.p50": percentile(full, 0.5),
        "claim_10.p99": percentile(full, 0.99),
        "claim_10.empty_p99": percentile(empty, 0.99),
        "claim_10.full/empty": percentile(full, 0.5) / percentile(empty, 0.5),
        "claim_10.full/empty_p99": percentile(full, 0.99) / percentile(empty, 0.99),
    }


async def _claims(place: Place, sizes: Sizes, scale: float) -> list[float]:
    times = []
    async with place.fresh() as url, opened(url) as it:
        await fill(place, url, scale)
        store = await it.app.open()
        await it.app.enqueue_many(Request(it.noop, PAYLOAD) for _ in range((sizes.samples + 10) * 10))
        done = Outcome(Status.COMPLETED, result="1")
        for n in range(sizes.samples + 10):
            t = time.perf_counter()
            claimed = await store.claim(worker_id="w-bench", queue="default", limit=10, ttl=60)
            if n >= 10:
                times.append((time.perf_counter() - t) * 1000)
            if len(claimed) != 10 or {c.kind for c in claimed} != {"noop"}:
                raise Incorrect(f"claim(10) gave {[c.kind for c in claimed]}")
            await asyncio.gather(*(store.finish(c.lease, done) for c in claimed))
        await check(place, url, "noop", status="COMPLETED", jobs=(sizes.samples + 10) * 10, events=3)
    return times


async def heartbeat_10k(place: Place, sizes: Sizes) -> Figures:
    """One heartbeat of ten thousand leases."""
    number, ttl = round(10_000 * sizes.part), 60.0
    async with place.fresh() as url, opened(url) as it:
        store = await it.app.open()
        await it.app.enqueue_many(Request(it.noop, PAYLOAD) for _ in range(number))
        leases: list[Lease] = []
        while claimed := await store.claim(worker_id="w-bench", queue="default", limit=500, ttl=ttl):
            leases += [job.lease for job in claimed]
        times = []
        for n in range(102):
            t = time.perf_counter()
            kept = await store.heartbeat(leases, ttl=ttl)
            if n >= 2:
                times.append((time.perf_counter() - t) * 1000)
            if len(kept) != number:
                raise Incorrect(f"a heartbeat of {number} leases renewed {len(kept)}")
        done = Outcome(Status.COMPLETED, result="1")
        await asyncio.gather(*(store.finish(lease, done) for lease in leases))
        await check(place, url, "noop", status="COMPLETED", jobs=number, events=3)
    return {"heartbeat_10k.p50": percentile(times, 0.5), "heartbeat_10k.p99": percentile(times, 0.99)}


async def memory(place: Place, sizes: Sizes) -> Figures:
    """A worker process: resident when it has nothing to do, and at most while it drains."""
    async with place.fresh() as url, opened(url) as it, Workers.started(url, 1) as workers:
        workers.go()
        await asyncio.sleep(2)
        idle = workers.memory("VmRSS")
        workers.forget_peak()
        await it.app.enqueue_many(Request(it.noop, PAYLOAD) for _ in range(sizes.jobs))
        await _drained(place, url)
        busy = workers.memory("VmHWM")
        await workers.stop()
        await check(place, url, "noop", status="COMPLETED", jobs=sizes.jobs, events=3)
    return {} if idle is None or busy is None else {"memory.idle": idle, "memory.busy": busy}


# -- endurance ---------------------------------------------------------------------------------------------------------


async def sustained(place: Place, sizes: Sizes) -> Figures:
    """Enqueue and drain at once, with a backlog of 5,000 jobs: the first sixth of the time beside the last."""
    backlog, batch, window = 5000, 500, sizes.seconds / 6
    async with place.fresh() as url, opened(url) as it:
        stored, going = 0, True

        async def produce() -> None:
            nonlocal stored
            while going:
                if stored - it.counted.ran > backlog:
                    await asyncio.sleep(0.002)
                    continue
                await it.app.enqueue_many(Request(it.noop, PAYLOAD) for _ in range(batch))
                stored += batch

        async with working(it):
            producing = asyncio.create_task(produce())
            await asyncio.sleep(1)
            marks = [(time.perf_counter(), it.counted.ran)]
            for _ in range(6):
                await asyncio.sleep(window)
                marks.append((time.perf_counter(), it.counted.ran))
            going = False
            await producing
            await it.counted.reach(stored)
            await ended(it, "noop")
        _once_each(it.counted.ran, stored)
        await check(place, url, "noop", status="COMPLETED", jobs=stored, events=3)
    rates = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.pairwise(marks)]
    whole = (marks[-1][1] - marks[0][1]) / (marks[-1][0] - marks[0][0])
    return {"sustained": whole, "sustained.last/first": rates[-1] / rates[0]}


Workload = Callable[[Place, Sizes], Awaitable[Figures]]

WORKLOADS: dict[str, Workload] = {
    "enqueue_bulk": enqueue_bulk,
    "enqueue_1": enqueue_1,
    "enqueue_32": enqueue_32,
    "drain": drain,
    "drain_2": drain_by(2),
    "drain_4": drain_by(4),
    "write_4": write_4,
    "steps_1": steps_of(1, 1500),
    "steps_32": steps_of(32, 300),
    "steps_128": steps_of(128, 150),
    "pickup": pickup,
    "claim_10": claim_10,
    "heartbeat_10k": heartbeat_10k,
    "memory": memory,
    "sustained": sustained,
}
ONCE = frozenset({"claim_10", "heartbeat_10k", "memory", "sustained"})
"""Too long to be repeated, or many samples in themselves: run in the first round only."""
