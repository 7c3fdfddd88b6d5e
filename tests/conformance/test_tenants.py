"""Views of many tenants share the connections, threads and batches of one engine, and see nothing of each other."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any, TypeVar

import pytest

from perdure.model.errors import IdempotencyConflict, JobNotFound, LeaseLost
from perdure.model.events import NewEvent
from perdure.model.jobs import Enqueued, JobFilter
from perdure.store.open import open_store
from perdure.store.postgres.engine.engine import POOL_SIZE
from perdure.store.protocol import Store
from tests.conformance.sql_shell import open_shell
from tests.conformance.support import KINDS, S, checked_log, event, new_job, outcome, run_to, started

T = TypeVar("T")

TENANTS = 1_000
MOST_CONNECTIONS = POOL_SIZE + 5 + 1  # the pool, the hot ones, the notifier's


async def together(calls: Iterable[Awaitable[T]]) -> list[Any]:
    """The answers and errors of calls that begin at once, and so share their batches."""
    return await asyncio.gather(*calls, return_exceptions=True)


async def test_a_view_is_of_one_tenant(store: Store) -> None:
    own = store.tenant_id
    view = store.tenant("acme")
    assert (view.tenant_id, view.tenant("zeta").tenant_id) == ("acme", "zeta")
    assert store.tenant_id == own, "the view it was made from is unchanged"
    job_id = (await view.jobs.enqueue(new_job())).id
    assert (await store.tenant("acme").jobs.get_job(job_id)).tenant_id == "acme"
    with pytest.raises(JobNotFound):
        await store.jobs.get_job(job_id)


async def test_enqueues_of_one_batch_stay_with_their_tenants(store: Store) -> None:
    views = [store.tenant(f"{store.tenant_id}-{n}") for n in range(40)]
    key = {"idempotency_key": "order:42"}
    plain = [new_job(queue="q") for _ in views]
    keyed = [new_job(queue="q", payload=f'{{"n": {n}}}', **key) for n in range(len(views))]
    jobs = list(zip(views, plain, strict=True)) + list(zip(views, keyed, strict=True))
    answers = await together(view.jobs.enqueue(job) for view, job in jobs)
    assert answers == [Enqueued(job.id, created=True) for _, job in jobs], "a key belongs to its tenant"

    again = await together(
        view.jobs.enqueue(new_job(payload=job.payload, **key)) for view, job in zip(views, keyed, strict=True)
    )
    assert again == [Enqueued(job.id, created=False) for job in keyed]
    others = await together(view.jobs.enqueue(new_job(payload='"another"', **key)) for view in views)
    assert {type(answer) for answer in others} == {IdempotencyConflict}

    for view, *own in zip(views, plain, keyed, strict=True):
        page = await view.jobs.list_jobs(JobFilter())
        assert {job.id for job in page.items} == {job.id for job in own}
        assert {job.tenant_id for job in page.items} == {view.tenant_id}
        claimed = await view.leases.claim(worker_id="w", queue="q", kinds=KINDS, limit=100, ttl=30)
        assert {job.id for job in claimed} == {job.id for job in own}


@pytest.mark.parametrize("many", [1, 2])
async def test_writes_of_one_batch_touch_no_job_of_another_tenant(store: Store, many: int) -> None:
    """Half of the calls come with the lease of a job of another tenant, which is as good as none."""
    views = [store.tenant(f"{store.tenant_id}-{n}") for n in range(40)]
    leases = [await started(view) for view in views]
    own, others = list(zip(views, leases, strict=True))[:20], list(zip(views[:20], leases[20:], strict=True))

    def events() -> list[NewEvent]:
        return [event() for _ in range(many)]  # one shares an append, more a transaction

    answers = await together(view.leases.record(lease, events()) for view, lease in own + others)
    assert [type(answer) for answer in answers] == [int] * 20 + [LeaseLost] * 20
    for view, lease in others:
        assert await view.leases.heartbeat([lease], ttl=30) == set()

    ends = [S.RETRY if n % 2 else S.COMPLETED for n in range(20)]
    answers = await together(
        view.leases.finish(lease, outcome(end)) for (view, lease), end in zip(own + others, ends * 2, strict=True)
    )
    assert answers[:20] == ends
    assert {type(answer) for answer in answers[20:]} == {LeaseLost}

    for (view, lease), end in zip(own, ends, strict=True):
        assert len(await checked_log(view, lease.job_id)) == 2 + many + 1, "created, claimed, its events, its end"
        assert (await view.jobs.get_job(lease.job_id)).status is end
    for view, lease in zip(views[20:], leases[20:], strict=True):
        assert len(await checked_log(view, lease.job_id)) == 2, "nothing was written to it"
        assert await view.leases.finish(lease, outcome(S.COMPLETED)) is S.COMPLETED


async def test_hints_reach_the_listeners_of_their_tenant(store: Store) -> None:
    async with store.tenant("acme").hints.listen("work") as listener:
        await store.tenant("acme").jobs.enqueue(new_job())
        assert await listener.wait(5)


async def test_hints_of_other_tenants_wake_no_listener(postgres_url: str) -> None:
    store, other_process = await open_store(postgres_url), await open_store(postgres_url)
    try:
        async with store.tenant("acme").hints.listen("work") as acme, store.tenant("zeta").hints.listen("work") as zeta:
            await store.tenant("acme").jobs.enqueue(new_job())
            assert await acme.wait(5)
            await other_process.tenant("acme").jobs.enqueue(new_job())
            assert await acme.wait(5)
            assert not await zeta.wait(0.05)
            await other_process.tenant("zeta").jobs.enqueue(new_job())
            assert await zeta.wait(5)
    finally:
        await store.close()
        await other_process.close()


async def test_a_thousand_tenants_use_the_connections_of_one(postgres_url: str) -> None:
    async with open_shell(postgres_url) as shell:

        async def connections() -> int:
            [row] = await shell.run(
                "select count(*) as n from pg_stat_activity "
                "where datname = current_database() and application_name = 'perdure'"
            )
            return int(row["n"])

        async def work(view: Store) -> None:
            lease = await started(view, queue="q")
            await view.leases.record(lease, [event()])
            assert await view.leases.heartbeat([lease], ttl=30) == {lease.job_id}
            assert await view.leases.finish(lease, outcome(S.COMPLETED)) is S.COMPLETED
            assert await view.jobs.count_jobs(JobFilter(), by="status") == {"COMPLETED": 1}

        store = await open_store(postgres_url)
        try:
            await asyncio.gather(*(work(store.tenant(f"tenant-{n}")) for n in range(TENANTS)))
            async with store.tenant("tenant-1").hints.listen("work"), store.tenant("tenant-2").hints.listen("work"):
                assert 1 < await connections() <= MOST_CONNECTIONS
            rows = await shell.run(
                "select count(*) as jobs, count(distinct tenant_id) as tenants from jobs where status = 'COMPLETED'"
            )
            assert (rows[0]["jobs"], rows[0]["tenants"]) == (TENANTS, TENANTS)
        finally:
            await store.close()


async def test_closing_a_view_closes_them_all(store: Store) -> None:
    view = store.tenant("acme")
    await run_to(view, S.COMPLETED)
    await view.close()
    with pytest.raises(Exception, match="closed"):
        await store.jobs.enqueue(new_job())
