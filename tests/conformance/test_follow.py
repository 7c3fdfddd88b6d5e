"""Following a job's log while others write it: nothing skipped, nothing twice, until the end."""

import asyncio
import sys
from uuid import UUID, uuid4

import pytest

from perdure.model.errors import JobNotFound
from perdure.model.events import Event
from perdure.model.jobs import Lease
from perdure.store.follow import follow
from perdure.store.protocol import Store
from tests.conformance.support import NOTE, S, claim, enqueue, event, lease_of, outcome, run_to

# Another process: claims the job of a queue and writes 40 events in uneven bursts before it completes it.
WRITER = """
import asyncio, sys
from perdure.store.open import open_store
from tests.conformance.support import claim, enqueue
from tests.conformance.test_follow import write

async def main(url, job_id):
    store = await open_store(url)
    await write(store, (await claim(store, job_id)).lease)
    await store.close()

from uuid import UUID
asyncio.run(main(sys.argv[1], UUID(sys.argv[2])))
"""
LENGTH = 1 + 1 + 40 + 1  # created, started, written, completed


async def write(store: Store, lease: Lease) -> None:
    for burst in (1, 7, 1, 1, 20, 10):
        await store.leases.record(lease, [event() for _ in range(burst)])
        await asyncio.sleep(0)
    await store.leases.finish(lease, outcome(S.COMPLETED))


async def followed(store: Store, job_id: UUID, after: int = 0) -> list[Event]:
    async with asyncio.timeout(20):
        return [e async for e in follow(store, job_id, after=after)]


def assert_complete(events: list[Event], first: int = 1) -> None:
    assert [e.version for e in events] == list(range(first, LENGTH + 1))
    assert events[-1].new_status is S.COMPLETED


@pytest.mark.parametrize("after", [0, 1, 5])
async def test_a_follower_sees_every_event_once_and_stops_at_the_end(store: Store, after: int) -> None:
    job_id = await enqueue(store)
    following = asyncio.create_task(followed(store, job_id, after))
    await asyncio.sleep(0.01)
    await write(store, (await claim(store, job_id)).lease)
    assert_complete(await following, after + 1)


async def test_many_followers_of_one_job(store: Store) -> None:
    job_id = await enqueue(store)
    following = [asyncio.create_task(followed(store, job_id)) for _ in range(10)]
    await write(store, (await claim(store, job_id)).lease)
    for task in following:
        assert_complete(await task)


async def test_a_finished_job_is_read_from_its_log(store: Store) -> None:
    job_id = await enqueue(store)
    await write(store, (await claim(store, job_id)).lease)
    assert_complete(await followed(store, job_id))
    assert_complete(await followed(store, job_id, LENGTH - 1), LENGTH)
    assert await followed(store, job_id, LENGTH) == []


@pytest.mark.parametrize("end", [S.FAILED, S.CANCELLED, S.DEADLETTER])
async def test_every_terminal_state_is_an_end(store: Store, end: S) -> None:
    job_id = await run_to(store, S.RUNNING)
    following = asyncio.create_task(followed(store, job_id))
    await store.leases.finish(await lease_of(store, job_id), outcome(end))
    assert (await following)[-1].new_status is end


async def test_a_cancel_from_outside_ends_it_too(store: Store) -> None:
    job_id = await run_to(store, S.PARKED)
    following = asyncio.create_task(followed(store, job_id))
    await store.jobs.cancel(job_id, note=NOTE)
    assert (await following)[-1].type == "job_cancelled"


async def test_an_unknown_job_cannot_be_followed(store: Store) -> None:
    with pytest.raises(JobNotFound):
        await followed(store, uuid4())


async def test_following_across_two_instances(file_store: Store, twin: Store) -> None:
    job_id = await enqueue(file_store)
    following = asyncio.create_task(followed(twin, job_id))
    await write(file_store, (await claim(file_store, job_id)).lease)
    assert_complete(await following)


async def test_following_across_processes(file_store: Store, file_store_url: str) -> None:
    job_id = await enqueue(file_store)
    command = [sys.executable, "-c", WRITER, file_store_url, str(job_id)]
    writer = await asyncio.create_subprocess_exec(*command)
    assert_complete(await followed(file_store, job_id))
    assert await writer.wait() == 0
