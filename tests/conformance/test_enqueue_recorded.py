"""Jobs that begin with things recorded elsewhere: stored in one transaction, or not at all."""

from typing import Any

import pytest

from perdure.model.errors import IdempotencyConflict, InvalidInput, JobNotFound
from perdure.model.jobs import NewJob, Outcome
from perdure.store.group_commit.limits import MOST_ITEMS, MOST_TEXT, event_chunks
from perdure.store.protocol import Store
from tests.conformance.support import S, checked_log, claim, event, new_job, own_queue


def forked(**changes: Any) -> NewJob:
    return new_job(**{"queue": own_queue(), "origin_kind": "fork", "origin_id": new_job().id, **changes})


async def test_the_log_begins_with_what_was_recorded(store: Store) -> None:
    job = forked()
    events = [
        event("node_finished", '{"key": "a", "digest": "-", "result": 1}'),
        event("checkpoint_saved", '{"state": [1]}'),
    ]
    done = await store.jobs.enqueue_recorded(job, events, checkpoint="[1]")
    assert (done.id, done.created) == (job.id, True)
    stored = await store.jobs.get_job(job.id)
    assert (stored.status, stored.version, stored.attempt) == (S.PENDING, 3, 0)
    assert (stored.state.checkpoint, stored.state.cursor, stored.state.tokens) == ([1], "a", 0)
    assert (stored.origin_kind, stored.origin_id) == ("fork", job.origin_id)
    assert stored.due_at == stored.run_at
    log = await checked_log(store, job.id)
    assert [(e.version, e.type, e.attempt) for e in log] == [
        (1, "job_created", None),
        (2, "node_finished", 0),
        (3, "checkpoint_saved", 0),
    ]
    assert [str(e.event_id) for e in log[1:]] == [e.event_id for e in events]
    assert {e.at for e in log} == {stored.created_at}


async def test_it_is_claimed_as_any_other(store: Store) -> None:
    job = forked()
    await store.jobs.enqueue_recorded(job, [event(), event()])
    claimed = await claim(store, job.id)
    assert (claimed.version, claimed.lease.attempt) == (4, 1)
    assert await store.leases.record(claimed.lease, [event()]) == 5
    await store.leases.finish(claimed.lease, Outcome(S.COMPLETED, result="1"))
    assert [e.attempt for e in await checked_log(store, job.id)] == [None, 0, 0, 1, 1, 1]


async def test_nothing_recorded_is_an_enqueue(store: Store) -> None:
    job = forked()
    await store.jobs.enqueue_recorded(job, [])
    assert (await store.jobs.get_job(job.id)).version == 1
    assert (await claim(store, job.id)).version == 2


async def test_repeating_a_call_writes_nothing(store: Store) -> None:
    job = forked()
    await store.jobs.enqueue_recorded(job, [event()], checkpoint="1")
    before = await store.jobs.get_job(job.id), await store.jobs.list_events(job.id)
    again = await store.jobs.enqueue_recorded(job, [event()], checkpoint="2")
    assert again.id == job.id
    assert (await store.jobs.get_job(job.id), await store.jobs.list_events(job.id)) == before


async def test_a_key_that_is_taken(store: Store) -> None:
    first = forked(idempotency_key="k")
    await store.jobs.enqueue_recorded(first, [event()])
    same = await store.jobs.enqueue_recorded(forked(idempotency_key="k"), [event()])
    assert (same.id, same.created) == (first.id, False)
    other = forked(idempotency_key="k", payload="2")
    with pytest.raises(IdempotencyConflict):
        await store.jobs.enqueue_recorded(other, [event()])
    with pytest.raises(JobNotFound):
        await store.jobs.get_job(other.id)
    assert len(await checked_log(store, first.id)) == 2


async def test_all_or_nothing(store: Store) -> None:
    for events, checkpoint in (([event(), event(payload="{")], None), ([event()], "{")):
        job = forked()
        with pytest.raises(InvalidInput):
            await store.jobs.enqueue_recorded(job, events, checkpoint=checkpoint)
        with pytest.raises(JobNotFound):
            await store.jobs.get_job(job.id)
        assert await store.jobs.list_events(job.id) == []


async def test_a_long_record(store: Store) -> None:
    job = forked()
    events = [event(f"note {n}") for n in range(2 * MOST_ITEMS + 7)]
    await store.jobs.enqueue_recorded(job, events)
    log = await checked_log(store, job.id)
    assert [e.type for e in log[1:]] == [e.type for e in events]


def test_portions_are_bounded_by_number_and_by_text() -> None:
    large = event(payload='"' + "x" * (MOST_TEXT // 2) + '"')
    small = [event() for _ in range(MOST_ITEMS + 1)]
    events = [large, large, large, *small]
    portions = list(event_chunks(events))
    assert [e for portion in portions for e in portion] == events
    assert [len(portion) for portion in portions] == [1, 1, MOST_ITEMS, 2]
