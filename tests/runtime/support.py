"""What the runtime tests share: a worker in the background, waiting for something to be true, and reading logs."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from perdure import App, Backoff, Event, Handle, Job, Status, Worker
from perdure.model.approvals import Approval
from perdure.model.jobs import Lease
from perdure.runtime.chores import Chores
from perdure.store.protocol import Store
from tests.conformance.support import checked_log

PATIENCE = 30.0
"""Seconds a test waits for what takes milliseconds: this machine may be busy."""

NOW = Backoff(base=0, cap=0)
LONG = "1h"
LINGER = 0.3
QUICK: dict[str, Any] = {"lease": 3, "linger": LINGER, "concurrency": 10, "drain_timeout": PATIENCE}


@asynccontextmanager
async def working(app: App, **options: Any) -> AsyncIterator[Worker]:
    """A worker of this app in the background, cut off at the end."""
    worker = await app.worker(**{**QUICK, **options})
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop(now=True)
        async with asyncio.timeout(PATIENCE):
            await task


async def until(condition: Callable[[], Any], *, what: str = "the condition") -> Any:
    """Poll until a condition (plain or async) gives something true, and return that."""
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"waited {PATIENCE:g} s for {what}")
        await asyncio.sleep(0.005)


async def reached(handle: Handle[Any], *statuses: Status) -> Job:
    """Wait until the job is in one of these states; fail at once if it ended in another."""

    async def there() -> Job | None:
        job = await handle.get()
        if job.status in statuses:
            return job
        if job.status.terminal:
            raise AssertionError(f"it ended {job.status}: {job.error_message}")
        return None

    job: Job = await until(there, what=f"{'/'.join(statuses)}")
    return job


async def ended(app: App, handle: Handle[Any]) -> Job:
    """Wait until the job is finished and return it."""
    return await app.jobs.wait(handle.id, timeout=PATIENCE)


async def soon(awaitable: Awaitable[Any]) -> Any:
    """Await something that must not take for ever."""
    async with asyncio.timeout(PATIENCE):
        return await awaitable


async def pending(app: App, handle: Handle[Any]) -> Approval:
    """Wait for the job's one open approval."""

    async def asked() -> Approval | None:
        found = (await app.approvals.list(job_id=handle.id)).items
        return found[0] if found else None

    approval: Approval = await until(asked, what="an approval")
    return approval


async def lease_of(store: Store, handle: Handle[Any]) -> Lease:
    """The live lease of a job, as its holder knows it."""
    job = await store.jobs.get_job(handle.id)
    assert job.lease is not None
    return Lease(job.id, job.lease.attempt, job.lease.worker_id)


async def take_away(store: Store, handle: Handle[Any]) -> Lease:
    """Let the lease of a running job run out in the database and have it reaped, while its worker still works."""
    lease = await lease_of(store, handle)
    assert await store.leases.heartbeat([lease], ttl=0.001, started=[handle.id]) == {handle.id}

    async def reaped() -> bool:
        return handle.id in {r.job_id for r in await store.leases.reap(worker_id="somebody-else")}

    await until(reaped, what="the reaper")
    return lease


async def chores(app: App) -> None:
    """Reap and expire now, instead of at some moment of the next five seconds."""
    await Chores(await app.open(), "tester").run_once()


def types(events: Iterable[Event]) -> list[str]:
    """The types of events, in order."""
    return [e.type for e in events]


def keys(events: Iterable[Event], type: str) -> list[str]:
    """The keys of the events of one type, in order."""
    return [e.payload["key"] for e in events if e.type == type]


def only(events: Iterable[Event], type: str) -> Event:
    """The one event of this type."""
    [event] = [e for e in events if e.type == type]
    return event


async def check_every_job(app: App) -> None:
    """What holds for every job at rest, whatever the test did: dense versions, row = fold of the log, claim iff leased."""
    store = await app.open()
    for job in (await app.jobs.list(limit=1000)).items:
        if not job.status.leased:
            await checked_log(store, job.id)
