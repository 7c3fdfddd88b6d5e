"""Failures from outside: locks of other sessions, broken connections, callers that give up, and texts that are no JSON."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar
from uuid import UUID

import pytest

from perdure.model.errors import InvalidInput, PerdureError, StoreUnreachable
from perdure.model.ids import uuid7
from perdure.model.jobs import JobFilter
from perdure.store.open import open_store
from perdure.store.protocol import Store
from tests.conformance.sql_shell import Shell
from tests.conformance.support import (
    KINDS,
    NOTE,
    S,
    checked_log,
    claim,
    enqueue,
    event,
    new_job,
    outcome,
    run_to,
    started,
)

T = TypeVar("T")


async def how_many(store: Store) -> int:
    return sum((await store.jobs.count_jobs(JobFilter(), by="status")).values())


async def test_a_text_that_is_no_json_fails_alone(store: Store) -> None:
    """Many callers share a commit; one that brings nonsense must not take the others with it."""
    leases = [await started(store) for _ in range(8)]
    calls = [
        store.leases.record(lease, [event(payload="{no json" if n == 3 else "{}")]) for n, lease in enumerate(leases)
    ]
    recorded = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(r, InvalidInput) for r in recorded] == [n == 3 for n in range(8)]
    ends = [outcome(S.COMPLETED, result="no json" if n == 5 else "1") for n in range(8)]
    finished = await asyncio.gather(*map(store.leases.finish, leases, ends), return_exceptions=True)
    assert [isinstance(r, InvalidInput) for r in finished] == [n == 5 for n in range(8)]
    jobs = [new_job(payload="{no json" if n == 2 else "{}") for n in range(8)]
    stored = await asyncio.gather(*map(store.jobs.enqueue, jobs), return_exceptions=True)
    assert [isinstance(r, InvalidInput) for r in stored] == [n == 2 for n in range(8)]
    for lease in leases:
        await checked_log(store, lease.job_id)
    assert await store.leases.finish(leases[5], outcome(S.FAILED)) is S.FAILED, "its lease is as live as before"


@pytest.mark.parametrize("text", ["a\x00b", "a\ud800b"], ids=["NUL", "half a surrogate pair"])
async def test_a_text_that_a_database_cannot_hold_is_kept_or_refused_as_input(store: Store, text: str) -> None:
    """Programs print such things. A store may refuse them, in its own words, and for their own caller only."""
    leases = [await started(store) for _ in range(6)]
    ends = [outcome(S.FAILED, error=text if n == 2 else "plain") for n in range(6)]
    done = await asyncio.gather(*map(store.leases.finish, leases, ends), return_exceptions=True)
    assert [d for n, d in enumerate(done) if n != 2] == [S.FAILED] * 5
    assert done[2] is S.FAILED or isinstance(done[2], InvalidInput), done[2]
    try:
        await store.jobs.enqueue(new_job(goal=text))
    except InvalidInput:
        await store.jobs.enqueue(new_job(goal="plain"))
    for lease in leases:
        await checked_log(store, lease.job_id)


async def test_callers_that_give_up_do_not_disturb_the_others(store: Store) -> None:
    leases = [await started(store) for _ in range(20)]
    enqueues = [asyncio.create_task(store.jobs.enqueue(new_job(queue="many"))) for _ in range(40)]
    records = [asyncio.create_task(store.leases.record(lease, [event()])) for lease in leases]
    await asyncio.sleep(0)
    for task in (*enqueues[::3], *records[::3]):
        task.cancel()
    done = await asyncio.gather(*enqueues, *records, return_exceptions=True)
    assert not [d for d in done if isinstance(d, Exception)]
    for lease in leases:
        await checked_log(store, lease.job_id)
        assert await store.leases.finish(lease, outcome(S.COMPLETED)) is S.COMPLETED
    acknowledged = {d.result().id for d in enqueues if not d.cancelled()}
    assert acknowledged <= {
        job.id for job in (await store.jobs.list_jobs(JobFilter(queues=("many",)), limit=100)).items
    }


async def test_what_was_acknowledged_before_closing_is_there_after(file_store_url: str) -> None:
    store = await open_store(file_store_url)
    await store.schema.migrate()
    tasks = [asyncio.create_task(store.jobs.enqueue(new_job())) for _ in range(60)]
    await asyncio.sleep(0.002)
    async with asyncio.timeout(10):
        await store.close()
        done = await asyncio.gather(*tasks, return_exceptions=True)
    assert not [d for d in done if isinstance(d, BaseException) and not isinstance(d, PerdureError)]
    store = await open_store(file_store_url)
    for d in done:
        if not isinstance(d, BaseException):
            await checked_log(store, d.id)
    await store.close()


async def test_a_closed_store_says_so(store: Store) -> None:
    job_id = await enqueue(store)
    await store.close()
    for call in (
        store.jobs.enqueue(new_job()),
        store.jobs.get_job(job_id),
        store.leases.claim(worker_id="w", queue="q", kinds=KINDS, limit=1, ttl=1),
    ):
        async with asyncio.timeout(5):
            with pytest.raises(PerdureError):
                await call


# Locks of other sessions ----------------------------------------------------------------------------------------------------


async def test_a_write_transaction_of_another_session_is_waited_for(file_store: Store, shell: Shell) -> None:
    if shell.postgres:
        pytest.skip("PostgreSQL locks rows, see below")
    lease = await started(file_store)
    await shell.run("begin immediate")
    waiting = [
        asyncio.create_task(file_store.jobs.enqueue(new_job())),
        asyncio.create_task(file_store.leases.record(lease, [event()])),
    ]
    await asyncio.sleep(0.2)
    assert not any(task.done() for task in waiting)
    assert (await file_store.jobs.get_job(lease.job_id)).version == 2, "readers do not wait"
    await shell.run("commit")
    await asyncio.gather(*waiting)
    assert len(await checked_log(file_store, lease.job_id)) == 3


@pytest.mark.parametrize("ends", ["commit", "rollback"])
async def test_an_open_key_of_another_session_blocks_only_its_own_caller(
    file_store: Store, shell: Shell, ends: str
) -> None:
    """A caller's own transaction that enqueued the same key may stay open for long."""
    if not shell.postgres:
        pytest.skip("SQLite locks the database, see above")
    theirs = uuid7()
    await shell.run("begin")
    mine = new_job(idempotency_key="order:1")
    await shell.run(
        "insert into jobs (id, kind, payload, payload_hash, idempotency_key) "
        f"values ({shell.id(theirs)}, 'echo', '{mine.payload}', '{mine.payload_hash}', 'order:1')"
    )
    blocked = asyncio.create_task(file_store.jobs.enqueue(mine))
    async with asyncio.timeout(3):
        for _ in range(5):
            await asyncio.gather(*(enqueue(file_store) for _ in range(10)))
    assert not blocked.done()
    await shell.run(ends)
    async with asyncio.timeout(10):
        done = await blocked
    assert (done.id, done.created) == ((theirs, False) if ends == "commit" else (mine.id, True))


async def test_a_lock_of_another_session_on_one_job_does_not_hold_up_the_others(
    file_store: Store, shell: Shell
) -> None:
    if not shell.postgres:
        pytest.skip("SQLite locks the database, see above")
    locked, free = await started(file_store), [await started(file_store) for _ in range(5)]
    await shell.run("begin")
    await shell.run(f"select 1 from job_claims where job_id = {shell.id(locked.job_id)} for update")
    blocked = asyncio.create_task(file_store.leases.record(locked, [event()]))
    async with asyncio.timeout(5):
        for _ in range(3):
            await asyncio.gather(*(file_store.leases.record(lease, [event()]) for lease in free))
        await asyncio.gather(*(file_store.leases.finish(lease, outcome(S.COMPLETED)) for lease in free))
        job_id = await enqueue(file_store)
        await claim(file_store, job_id)
        assert (await file_store.jobs.get_job(locked.job_id)).status is S.RUNNING
    assert not blocked.done()
    await shell.run("rollback")
    async with asyncio.timeout(10):
        await blocked
    assert len(await checked_log(file_store, locked.job_id)) == 3


@pytest.mark.parametrize("writing", [False, True], ids=["alone", "while another end is written"])
async def test_of_many_ends_one_that_another_session_has_locked_does_not_hold_up_the_others(
    file_store: Store, shell: Shell, writing: bool
) -> None:
    if not shell.postgres:
        pytest.skip("SQLite locks the database, see above")
    locked, another, *free = [await started(file_store) for _ in range(6)]
    await shell.run("begin")
    await shell.run(f"select 1 from jobs where id = {shell.id(locked.job_id)} for update")
    async with asyncio.timeout(5):
        other = asyncio.create_task(file_store.leases.finish(another, outcome(S.COMPLETED)))
        if writing:
            await asyncio.sleep(0)
        results = await file_store.leases.finish_many([(lease, outcome(S.COMPLETED)) for lease in (locked, *free)])
        await other
    assert isinstance(results[0], StoreUnreachable)
    assert results[1:] == [S.COMPLETED] * len(free)
    alone = asyncio.create_task(file_store.leases.finish(locked, outcome(S.COMPLETED)))
    await asyncio.sleep(0.3)
    assert not alone.done()
    await shell.run("rollback")
    async with asyncio.timeout(10):
        assert await alone is S.COMPLETED


# Broken connections ----------------------------------------------------------------------------------------------------


class Lives:
    """Jobs that are enqueued, claimed, written to and completed, while the store's sessions are ended over and over.

    A cut comes after every few calls that returned: often enough to hit commits in flight, and never a livelock.
    """

    def __init__(self, store: Store, shell: Shell) -> None:
        self.store, self.shell = store, shell
        self.calls = self.cuts = 0
        self.orphans: set[UUID] = set()

    async def cut(self) -> None:
        while True:
            seen = self.calls
            while self.calls < seen + 12:
                await asyncio.sleep(0.001)
            await self.shell.run(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'perdure'"
            )
            self.cuts += 1

    async def report(self, call: Awaitable[T]) -> T:
        result = await call
        self.calls += 1
        return result

    async def live(self, n: int) -> UUID:
        key = f"order:{n}"
        job_id = (await self.report(self.store.jobs.enqueue(new_job(queue=key, idempotency_key=key)))).id
        while not (
            taken := await self.report(self.store.leases.claim(worker_id="w", queue=key, kinds=KINDS, limit=1, ttl=60))
        ):
            if (await self.store.jobs.get_job(job_id)).lease is not None:
                self.orphans.add(job_id)  # the claim's answer was lost, so its lease must run out: a reaper's case
                return job_id
        for _ in range(3):
            await self.report(self.store.leases.record(taken[0].lease, [event(), event("other")]))
        assert await self.report(self.store.leases.finish(taken[0].lease, outcome(S.COMPLETED))) is S.COMPLETED
        return job_id


async def test_lost_connections_lose_and_repeat_nothing(file_store: Store, shell: Shell) -> None:
    if not shell.postgres:
        pytest.skip("a file has no connections to lose")
    lives = Lives(file_store, shell)
    cutting = asyncio.create_task(lives.cut())
    ids: list[UUID] = []
    try:
        async with asyncio.timeout(60):
            while lives.cuts < 3:  # under other load one round of jobs may be over before the third cut
                ids += await asyncio.gather(*(lives.live(n) for n in range(len(ids), len(ids) + 30)))
    finally:
        cutting.cancel()
        await asyncio.wait([cutting])
    assert len(lives.orphans) < len(ids)
    assert await how_many(file_store) == len(ids)
    for job_id in ids:
        log = await checked_log(file_store, job_id)
        if job_id not in lives.orphans:
            assert [e.type for e in log] == ["job_created", "run_started", *["note", "other"] * 3, "job_completed"]
            assert len(await file_store.jobs.list_runs(job_id)) == 1


async def test_the_store_comes_back_by_itself(file_store: Store, shell: Shell) -> None:
    if not shell.postgres:
        pytest.skip("a file has no connections to lose")
    job_id = await run_to(file_store, S.PARKED)
    for _ in range(3):
        await shell.run("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'perdure'")
        async with asyncio.timeout(10):
            assert (await file_store.jobs.get_job(job_id)).status is S.PARKED
            await enqueue(file_store)
            await started(file_store)
    assert await file_store.jobs.cancel(job_id, note=NOTE) is S.CANCELLED
