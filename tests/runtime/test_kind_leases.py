"""Leases whose length depends on the kind of their job."""

import asyncio
from collections.abc import Sequence
from typing import Any

from perdure import App, JobContext
from perdure.model.jobs import Lease
from perdure.runtime.lease_times import LeaseLength
from perdure.runtime.worker import Worker
from perdure.runtime.worker_options import WorkerOptions


async def test_a_kind_is_renewed_to_its_own_length_as_often_as_it_says(app: App) -> None:
    """On the database: an ordinary job has the lease of its worker, one of the other kind a longer one, renewed more seldom."""
    renewals: list[tuple[float, int]] = []
    began, ends = asyncio.Event(), asyncio.Event()
    running = 0

    async def held(ctx: JobContext) -> None:
        nonlocal running
        running += 1
        if running == 2:
            began.set()
        await ends.wait()

    app.job(name="usual")(held)
    app.job(name="long")(held)
    store = await app.open()
    real = store.leases.heartbeat

    async def heartbeat(leases: Sequence[Lease], *, ttl: float, **more: Any) -> Any:
        renewals.append((ttl, len(leases)))
        return await real(leases, ttl=ttl, **more)

    store.leases.heartbeat = heartbeat  # type: ignore[method-assign]  # seen by this test
    options = WorkerOptions(lease=1.5, kind_leases={"long": LeaseLength(60.0, 1.4)})
    worker = Worker(store, app.registry, options)
    work = asyncio.create_task(worker.run())
    usual, long = await app.enqueue("usual"), await app.enqueue("long")
    await began.wait()
    await asyncio.sleep(2.2)
    now = await store.now()
    left = {}
    for handle in (usual, long):
        lease = (await handle.get()).lease
        assert lease is not None
        left[handle.id] = (lease.expires_at - now).total_seconds()
    assert 0 < left[usual.id] <= 1.5
    assert 50 < left[long.id] <= 60
    times = [ttl for ttl, _ in renewals]
    assert times.count(60.0) == 2, "at the first heartbeat, and 1.4 seconds later"
    assert times.count(1.5) >= 3
    ends.set()
    await usual.result(timeout=10)
    await long.result(timeout=10)
    worker.stop()
    await work
