"""All callers at once: clients, workers, reapers and deciders of two instances on a few jobs. Whatever interleaving comes,
only refusals that the protocol knows are given, nothing deadlocks, and every log stays whole."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from perdure.model.effects import open_wait, patch_state
from perdure.model.errors import (
    AlreadyDecided,
    IllegalTransition,
    JobLeased,
    LeaseLost,
    VersionMismatch,
)
from perdure.model.jobs import JobFilter, Lease, Wait
from perdure.model.states import TRANSITIONS, Status
from perdure.store.protocol import Store
from tests.conformance.support import (
    HOUR,
    KINDS,
    NOTE,
    S,
    approve,
    checked_log,
    deny,
    event,
    later,
    new_approval,
    new_job,
    outcome,
)

EXPECTED = (AlreadyDecided, IllegalTransition, JobLeased, LeaseLost, VersionMismatch)
ENDS = [s for s in Status if s in TRANSITIONS[S.RUNNING] and not s.leased]
ACTORS, STEPS = 8, 40


class Actor:
    """One user of the store, who does something at random to a job that others use as well."""

    def __init__(self, store: Store, name: str, seed: int, leases: list[Lease]) -> None:
        self.store, self.name, self.random = store, name, random.Random(seed)
        self.leases = leases  # shared: stale ones are used, too
        self.acts: list[Callable[[], Awaitable[Any]]] = [
            self.enqueue,
            self.claim,
            self.claim,
            self.record,
            self.record,
            self.finish,
            self.finish,
            self.ask,
            self.decide,
            self.decide,
            self.cancel,
            self.append,
            self.retry_now,
            self.lose,
            self.reap,
            self.wait,
        ]

    async def live_for(self, steps: int) -> None:
        for _ in range(steps):
            try:
                await self.random.choice(self.acts)()
            except EXPECTED:
                continue

    async def job(self) -> Any:
        jobs = (await self.store.jobs.list_jobs(JobFilter(), limit=12)).items
        return self.random.choice(jobs)

    async def enqueue(self) -> None:
        await self.store.jobs.enqueue_many([new_job(priority=self.random.randint(1, 9)) for _ in range(2)])

    async def claim(self) -> None:
        limit = self.random.randint(1, 3)
        taken = await self.store.leases.claim(worker_id=self.name, queue="default", kinds=KINDS, limit=limit, ttl=30)
        self.leases += [job.lease for job in taken]

    def lease(self) -> Lease:
        return self.random.choice(self.leases[-8:])

    async def record(self) -> None:
        events = [event() for _ in range(self.random.randint(0, 3))]
        waits = [Wait("nap", "timer", await later(self.store, self.random.choice([-1, HOUR])))]
        await self.store.leases.record(
            self.lease(), events, effects=[patch_state(tokens=1), *map(open_wait, waits[: self.random.randint(0, 1)])]
        )

    async def finish(self) -> None:
        end = outcome(self.random.choice([*ENDS, S.RETRY, S.PARKED]), delay=0, uses_retry=self.random.random() < 0.3)
        await self.store.leases.finish(self.lease(), end)

    async def wait(self) -> None:
        await self.store.leases.set_waiting(self.lease(), self.random.random() < 0.5)

    async def ask(self) -> None:
        await self.store.approvals.request_approval(self.lease(), new_approval(self.random.choice("abc")))

    async def decide(self) -> None:
        asked = (await self.store.approvals.list_approvals(limit=5)).items
        if asked:
            await self.store.approvals.decide(self.random.choice([approve, approve, deny])(self.random.choice(asked)))

    async def cancel(self) -> None:
        if self.random.random() < 0.4:
            await self.store.jobs.cancel((await self.job()).id, note=NOTE, force=self.random.random() < 0.5)

    async def append(self) -> None:
        job = await self.job()
        await self.store.jobs.append(job.id, job.version, event())

    async def retry_now(self) -> None:
        await self.store.jobs.retry_now((await self.job()).id, note=NOTE)

    async def lose(self) -> None:
        await self.store.leases.heartbeat([self.lease()], ttl=0.001, started=[])

    async def reap(self) -> None:
        await self.store.leases.reap(worker_id=self.name)
        await self.store.leases.expire()


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_all_callers_at_once(file_store: Store, twin: Store, seed: int) -> None:
    first = await file_store.jobs.enqueue_many([new_job() for _ in range(6)])
    taken = await file_store.leases.claim(worker_id="first", queue="default", kinds=KINDS, limit=3, ttl=30)
    leases = [job.lease for job in taken]
    actors = [Actor((file_store, twin)[n % 2], f"actor-{n}", seed * 100 + n, leases) for n in range(ACTORS)]
    async with asyncio.timeout(60):
        await asyncio.gather(*(actor.live_for(STEPS) for actor in actors))
    page = await file_store.jobs.list_jobs(JobFilter(), limit=10_000)
    assert {done.id for done in first} <= {job.id for job in page.items}
    for job in page.items:
        log = await checked_log(file_store, job.id)
        runs = await file_store.jobs.list_runs(job.id)
        assert len({run.attempt for run in runs}) == len(runs)
        attempts = [e.attempt for e in log if e.new_status is S.RUNNING and e.previous_status is not S.WAITING]
        assert attempts == list(range(1, len(attempts) + 1)), "every attempt has one holder"
