"""Waiting for many jobs: one read at a time serves all who wait, and no event is missed."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import pytest

from perdure.model.errors import JobNotFound, StoreUnreachable, WaitTimeout
from perdure.model.jobs import Head
from perdure.runtime.client.wait import wait_for_end
from perdure.store import heads
from perdure.store.follow import follow
from perdure.store.hints import HintListener
from perdure.store.protocol import Store, Topic
from tests.conformance.sql_shell import Shell
from tests.conformance.support import S, claim, enqueue, event, outcome, run_to, started

MANY = 30
LIMIT = 30.0


class CountedStore:
    """A store that counts how often jobs are read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.jobs = CountedJobs(store)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class CountedJobs:
    def __init__(self, store: Store) -> None:
        self._jobs = store.jobs
        self.single, self.shared, self.at_once, self.most_at_once = 0, 0, 0, 0
        self.failing = False

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._jobs, name)

        async def counted(*args: Any, **kwargs: Any) -> Any:
            self.single += 1
            return await call(*args, **kwargs)

        return counted

    async def heads(self, job_ids: Sequence[UUID]) -> dict[UUID, Head]:
        if self.failing:
            raise StoreUnreachable("the database is away")
        self.shared += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return await self._jobs.heads(job_ids)
        finally:
            self.at_once -= 1


async def until_read(jobs: CountedJobs) -> None:
    """Wait for a shared read that begins after this call."""
    before = jobs.shared
    async with asyncio.timeout(LIMIT):
        while jobs.shared <= before or jobs.at_once:
            await asyncio.sleep(0.005)


async def test_heads_are_versions_and_statuses(store: Store) -> None:
    pending = await enqueue(store)
    lease = await started(store)
    await store.leases.record(lease, [event(), event()])
    ended = await run_to(store, S.CANCELLED)
    ids = [pending, lease.job_id, ended]
    found = await store.jobs.heads([*ids, uuid4(), pending])
    jobs = [await store.jobs.get_job(id) for id in ids]
    assert found == {job.id: Head(job.version, job.status) for job in jobs}
    assert [head.status for head in found.values()].count(S.RUNNING) == 1
    assert await store.jobs.heads([]) == {}
    assert await store.tenant("another").jobs.heads(ids) == {}


async def test_the_reads_of_those_who_wait_do_not_grow_with_the_events_of_others(store: Store) -> None:
    counted: Any = CountedStore(store)
    reads: CountedJobs = counted.jobs
    ids = [await enqueue(store) for _ in range(MANY)]
    waiting = [asyncio.create_task(wait_for_end(counted, id, None)) for id in ids]
    await until_read(reads)
    busy = await started(store)
    for _ in range(5):
        await store.leases.record(busy, [event()])
        await until_read(reads)
    assert reads.single == MANY  # each when it began to wait
    for id in ids:
        await store.jobs.cancel(id, note="{}")
    async with asyncio.timeout(LIMIT):
        jobs = await asyncio.gather(*waiting)
    assert [(job.id, job.status) for job in jobs] == [(id, S.CANCELLED) for id in ids]
    assert reads.single == 2 * MANY
    assert reads.most_at_once == 1
    assert not heads._READERS


async def test_those_who_follow_read_a_log_only_after_an_event_of_it(store: Store) -> None:
    counted: Any = CountedStore(store)
    reads: CountedJobs = counted.jobs

    async def followed(job_id: UUID) -> int:
        return len([e async for e in follow(counted, job_id)])

    ids = [await enqueue(store) for _ in range(MANY)]
    following = [asyncio.create_task(followed(id)) for id in ids]
    await until_read(reads)
    busy = (await claim(store, ids[0])).lease
    for _ in range(5):
        await store.leases.record(busy, [event()])
        await until_read(reads)
    await store.leases.finish(busy, outcome(S.COMPLETED))
    async with asyncio.timeout(LIMIT):
        assert await following[0] == 8
    assert reads.single <= 2 * MANY + 7
    for id in ids[1:]:
        await store.jobs.cancel(id, note="{}")
    async with asyncio.timeout(LIMIT):
        assert await asyncio.gather(*following[1:]) == [2] * (MANY - 1)
    assert reads.most_at_once == 1


class MuteHints:
    """Hints that are all lost."""

    @asynccontextmanager
    async def listen(self, _topic: Topic) -> AsyncIterator[HintListener]:
        yield HintListener()


async def test_an_end_is_learnt_though_all_hints_are_lost(store: Store) -> None:
    mute: Any = CountedStore(store)
    mute.hints = MuteHints()
    ids = [await enqueue(store) for _ in range(3)]
    waiting = [asyncio.create_task(wait_for_end(mute, id, None)) for id in ids]
    await until_read(mute.jobs)
    for id in ids:
        await store.jobs.cancel(id, note="{}")
    async with asyncio.timeout(LIMIT):
        assert [job.status for job in await asyncio.gather(*waiting)] == [S.CANCELLED] * 3


async def test_an_end_is_learnt_though_the_connections_are_lost(file_store: Store, shell: Shell) -> None:
    if not shell.postgres:
        pytest.skip("a file has no connections to lose")
    job_id = await enqueue(file_store)
    waiting = asyncio.create_task(wait_for_end(file_store, job_id, None))
    await until_waited_for()
    for _ in range(3):
        await shell.run("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'perdure'")
    await file_store.jobs.cancel(job_id, note="{}")
    async with asyncio.timeout(LIMIT):
        assert (await waiting).status is S.CANCELLED


async def until_waited_for() -> None:
    async with asyncio.timeout(LIMIT):
        while not heads._READERS:
            await asyncio.sleep(0.005)


async def test_one_who_stops_waiting_changes_nothing_for_the_others(store: Store) -> None:
    first, second = await enqueue(store), await enqueue(store)
    waiting = asyncio.create_task(wait_for_end(store, first, None))
    with pytest.raises(WaitTimeout):
        await wait_for_end(store, second, 0.02)
    again = asyncio.create_task(wait_for_end(store, first, None))
    await asyncio.sleep(0)
    again.cancel()
    await store.jobs.cancel(first, note="{}")
    async with asyncio.timeout(LIMIT):
        assert (await waiting).status is S.CANCELLED
    with pytest.raises(WaitTimeout):
        await wait_for_end(store, second, 0.02)  # the only one
    assert not heads._READERS


async def test_all_who_wait_learn_that_reading_fails(store: Store) -> None:
    counted: Any = CountedStore(store)
    ids = [await enqueue(store) for _ in range(3)]
    waiting = [asyncio.create_task(wait_for_end(counted, id, None)) for id in ids]
    await until_read(counted.jobs)
    counted.jobs.failing = True
    async with asyncio.timeout(LIMIT):
        errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error) for error in errors] == [StoreUnreachable] * 3
    assert not heads._READERS
    counted.jobs.failing = False
    with pytest.raises(WaitTimeout):
        await wait_for_end(counted, ids[0], 0.02)


async def test_an_unknown_job_is_not_waited_for(store: Store) -> None:
    async with asyncio.timeout(LIMIT):
        await heads.moved_on(store, uuid4())
        with pytest.raises(JobNotFound):
            await wait_for_end(store, uuid4(), None)
