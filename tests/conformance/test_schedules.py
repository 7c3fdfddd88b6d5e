"""Schedules as rows: what fires, once, whatever else happens."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure.model.errors import NotFound
from perdure.model.ids import uuid7
from perdure.model.jobs import NewJob
from perdure.model.schedules import NewSchedule, Overlap, Schedule, Skipped, firing_key
from perdure.store.protocol import Store
from perdure.store.protocol.schedules import Fired
from tests.conformance.sql_shell import Shell
from tests.conformance.support import HOUR, NOTE, S, own_queue

WEEK = 7 * 86400.0


async def put(store: Store, id: str = "nightly", **changes: Any) -> Schedule:
    """A schedule whose firing has come."""
    now = await store.now()
    new = NewSchedule(
        id=id,
        kind="k",
        payload='{"a": 1}',
        cron=None,
        every=60.0,
        at=None,
        timezone="UTC",
        anchor=now,
        queue=own_queue(),
        priority=7,
        max_retries=None,
        concurrency_key=None,
        max_concurrent=None,
        overlap=Overlap.SKIP,
        catch_up=WEEK,
        jitter=0.0,
        next_at=now,
        set_by="ann",
    )
    return await store.schedules.put_schedule(new._replace(**changes))


def job_for(schedule: Schedule, **changes: Any) -> NewJob:
    """The job of its next firing."""
    at = schedule.next_at
    assert at is not None
    job = NewJob(uuid7(), schedule.kind, "null", queue=schedule.queue, run_at=at, note=NOTE)
    return job._replace(idempotency_key=firing_key(schedule.id, at), **changes)


async def fire(store: Store, schedule: Schedule, *, early: bool = False) -> Fired | None:
    assert schedule.next_at is not None
    following = schedule.next_at + timedelta(minutes=1)
    return await store.schedules.fire(schedule, job_for(schedule), next_at=following, early=early)


async def test_a_schedule_is_stored_changed_listed_and_removed(store: Store) -> None:
    first = await put(store)
    assert await store.schedules.get_schedule("nightly") == first
    assert (first.payload, first.priority, first.set_by, first.overlap) == ({"a": 1}, 7, "ann", Overlap.SKIP)
    assert first.next_at is not None
    later = first.next_at + timedelta(hours=9)
    same = await put(store, next_at=later, anchor=later, priority=3)
    assert (same.next_at, same.anchor, same.priority) == (first.next_at, first.anchor, 3)
    changed = await put(store, next_at=later, anchor=later, every=90.0)
    assert (changed.next_at, changed.anchor, changed.created_at) == (later, later, first.created_at)
    other = await put(store, "other")
    assert await store.schedules.list_schedules(limit=9) == [changed, other]
    assert await store.schedules.list_schedules(limit=9, after="nightly") == [other]
    await store.schedules.remove_schedule("nightly")
    for call in (
        store.schedules.remove_schedule("nightly"),
        store.schedules.get_schedule("nightly"),
        store.schedules.pause_schedule("nightly"),
        store.schedules.resume_schedule("nightly", None),
        store.schedules.trigger("nightly", job_for(first)),
    ):
        with pytest.raises(NotFound):
            await call


async def test_only_what_is_due_or_near_is_found(store: Store) -> None:
    now = await store.now()
    due, near = await put(store, "due"), await put(store, "near", next_at=now + timedelta(seconds=10))
    await put(store, "far", next_at=now + timedelta(hours=1))
    await put(store, "ended", next_at=None)
    found = await store.schedules.due_schedules(ahead=20, limit=9)
    assert [(one.schedule, one.live) for one in found] == [(due, False), (near, False)]
    assert [one.schedule for one in await store.schedules.due_schedules(ahead=20, limit=1)] == [due]


async def test_a_firing_starts_one_job_by_several_workers(store: Store) -> None:
    schedule = await put(store)
    fired = await asyncio.gather(*(fire(store, schedule) for _ in range(4)))
    [started] = [one for one in fired if one is not None]
    assert started.job_id is not None
    job = await store.jobs.get_job(started.job_id)
    assert (job.status, job.kind, job.idempotency_key) == (S.PENDING, "k", firing_key("nightly", _next(schedule)))
    now = await store.schedules.get_schedule("nightly")
    assert (now.last_at, now.last_job_id) == (schedule.next_at, started.job_id)
    assert now.next_at == _next(schedule) + timedelta(minutes=1)
    assert await fire(store, schedule) is None, "it was fired"


async def test_a_job_that_a_backfill_started_is_not_started_again(store: Store) -> None:
    schedule = await put(store)
    there = await store.jobs.enqueue(job_for(schedule, payload='"another"'))
    fired = await fire(store, schedule)
    assert fired == Fired(there.id)


@pytest.mark.parametrize("overlap", Overlap)
async def test_what_a_firing_does_while_the_last_job_lives(store: Store, overlap: Overlap) -> None:
    schedule = await put(store, overlap=overlap)
    first = await fire(store, schedule)
    assert first is not None
    assert first.job_id is not None
    second = await store.schedules.get_schedule("nightly")
    early = await fire(store, second, early=True)
    if overlap is Overlap.ENQUEUE:
        assert early is not None
        assert early.job_id not in (None, first.job_id)
        return
    assert early == Fired(), "not decided before its time"
    assert await store.schedules.get_schedule("nightly") == second
    on_time = await fire(store, second)
    if overlap is Overlap.CANCEL_OLD:
        assert on_time == Fired(), "the caller cancels first"
        await store.jobs.cancel(first.job_id, note=NOTE)
        third = await fire(store, second)
        assert third is not None
        assert third.job_id is not None
        return
    assert on_time == Fired(skipped=Skipped.OVERLAP)
    skipped = await store.schedules.get_schedule("nightly")
    assert (skipped.skipped, skipped.skipped_at) == (Skipped.OVERLAP, second.next_at)
    assert (skipped.last_job_id, skipped.next_at) == (first.job_id, _next(second) + timedelta(minutes=1))
    await store.jobs.cancel(first.job_id, note=NOTE)
    third = await fire(store, skipped)
    assert third is not None
    assert third.job_id is not None


async def test_a_paused_schedule_does_not_fire(store: Store) -> None:
    schedule = await put(store)
    paused = await store.schedules.pause_schedule("nightly")
    assert paused.paused
    assert paused.next_at is None
    assert await fire(store, schedule) is None
    assert not await store.schedules.miss(schedule, next_at=None)
    assert await store.schedules.due_schedules(ahead=HOUR, limit=9) == []
    assert (await put(store, every=90.0)).next_at is None, "a change does not resume it"
    then = datetime(2031, 1, 1, tzinfo=UTC)
    resumed = await store.schedules.resume_schedule("nightly", then)
    assert (resumed.paused, resumed.next_at) == (False, then)
    again = await store.schedules.resume_schedule("nightly", then + timedelta(days=1))
    assert again.next_at == then, "it was not paused"


async def test_missed_firings_are_left_out_and_noted(store: Store) -> None:
    schedule = await put(store)
    then = _next(schedule) + timedelta(days=1)
    assert await store.schedules.miss(schedule, next_at=then)
    assert not await store.schedules.miss(schedule, next_at=then)
    now = await store.schedules.get_schedule("nightly")
    assert (now.skipped, now.skipped_at, now.next_at, now.last_job_id) == (Skipped.MISSED, schedule.next_at, then, None)


async def test_a_trigger_starts_the_last_job_and_leaves_the_next_firing(store: Store) -> None:
    schedule = await put(store)
    job = job_for(schedule)._replace(idempotency_key="by hand", run_at=await store.now())
    assert await store.schedules.trigger("nightly", job) == job.id
    assert await store.schedules.trigger("nightly", job) == job.id, "the same call again"
    now = await store.schedules.get_schedule("nightly")
    assert (now.last_job_id, now.next_at) == (job.id, schedule.next_at)
    assert (await fire(store, now)) == Fired(skipped=Skipped.OVERLAP)


async def test_tenants_have_schedules_of_the_same_id(store: Store) -> None:
    mine, other = await put(store), store.tenant("other")
    theirs = await put(other, every=5.0)
    assert (await store.schedules.get_schedule("nightly"), mine.every) == (mine, 60.0)
    assert [one.schedule for one in await other.schedules.due_schedules(ahead=0, limit=9)] == [theirs]
    await other.schedules.remove_schedule("nightly")
    assert await store.schedules.get_schedule("nightly") == mine


@pytest.mark.parametrize(
    "change",
    [
        "every = 0.5",
        "cron = '* * * * *'",
        "every = null",
        "overlap = 'maybe'",
        "priority = 10",
        "catch_up = -1",
        "skipped = 'overlap'",
        "max_concurrent = 2",
        "paused_at = anchor",
    ],
)
async def test_the_database_refuses_what_is_no_schedule(file_store: Store, shell: Shell, change: str) -> None:
    await put(file_store)
    with pytest.raises(Exception, match=r"(?i)check|constraint"):
        await shell.run(f"update schedules set {change}")


async def test_the_last_job_lives_until_it_has_ended(store: Store) -> None:
    schedule = await put(store)
    await store.schedules.trigger("nightly", job_for(schedule))

    async def live() -> bool:
        [one] = await store.schedules.due_schedules(ahead=0, limit=9)
        return one.live

    last = (await store.schedules.get_schedule("nightly")).last_job_id
    assert last is not None
    assert await live()
    await store.jobs.cancel(last, note=NOTE)
    assert not await live()


def _next(schedule: Schedule) -> datetime:
    assert schedule.next_at is not None
    return schedule.next_at
