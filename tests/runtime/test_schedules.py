"""Schedules at work: times, time zones, what was missed, and the jobs they start."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from perdure import App, InvalidInput, JobContext, NotFound, Overlap, Schedule, Status, UnknownHandler
from perdure.runtime.chores import Chores
from perdure.runtime.firings import ALIASES, check_cron, firings, next_firing
from perdure.runtime.schedule_firing import job_of
from perdure.testing import ManualClock, TestApp
from tests.runtime.support import PATIENCE, chores, working

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def rule(**changes: Any) -> Any:
    """Something with times."""
    return SimpleNamespace(**({"cron": None, "every": None, "at": None, "timezone": "UTC", "anchor": START} | changes))


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type,misc]  # a moment has at most seven parts


@pytest.fixture
def kit() -> Iterator[TestApp]:
    with TestApp(clock=ManualClock(START)) as kit:
        yield kit


@pytest.mark.parametrize(
    ("cron", "start", "end", "expected"),
    [
        # 2026-03-29 in Berlin: from 2:00 to 3:00; 2:30 is left out and comes at the change
        ("30 2 * * *", utc(2026, 3, 28), utc(2026, 3, 31), ["28 01:30", "29 01:00", "30 00:30"]),
        # 2026-10-25: from 3:00 back to 2:00; 2:30 comes twice and counts once
        ("30 2 * * *", utc(2026, 10, 24), utc(2026, 10, 27), ["24 00:30", "25 00:30", "26 01:30"]),
        ("0 * * * *", utc(2026, 10, 24, 23), utc(2026, 10, 25, 3), ["24 23:00", "25 00:00", "25 01:00", "25 02:00"]),
        ("0 * * * *", utc(2026, 3, 29), utc(2026, 3, 29, 3), ["29 00:00", "29 01:00", "29 02:00"]),
        ("15 3 * * MON", utc(2026, 3, 23), utc(2026, 4, 7), ["23 02:15", "30 01:15", "06 01:15"]),
    ],
)
def test_cron_keeps_to_the_wall_clock_of_its_zone(
    cron: str, start: datetime, end: datetime, expected: list[str]
) -> None:
    found = [f"{at:%d %H:%M}" for at in firings(rule(cron=cron, timezone="Europe/Berlin"), start, end)]
    assert found == expected


def test_no_time_comes_again_after_it_has_been() -> None:
    """Whatever moment one asks from, also within the hour that comes twice, the next time is later."""
    for cron in ("30 2 * * *", "*/20 * * * *", "0 1-3 * * *", "30 2,3 * * *"):
        schedule, moment = rule(cron=cron, timezone="Europe/Berlin"), utc(2026, 10, 24, 22)
        while moment < utc(2026, 10, 25, 6):
            following = next_firing(schedule, moment)
            assert following is not None
            assert following > moment
            moment += timedelta(minutes=7)


def test_an_interval_is_counted_from_its_anchor_and_a_single_time_ends() -> None:
    every = rule(every=90.0)
    assert next_firing(every, START) == START + timedelta(seconds=90)
    assert next_firing(every, START + timedelta(seconds=90)) == START + timedelta(seconds=180)
    assert next_firing(every, START + timedelta(days=365, seconds=1)) == START + timedelta(days=365, seconds=90)
    assert next_firing(every, START - timedelta(days=1)) == START + timedelta(seconds=90)
    once = rule(at=START)
    assert next_firing(once, START - timedelta(seconds=1)) == START
    assert next_firing(once, START) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("61 * * * *", "bad minute"),
        ("* 25 * * *", "bad hour"),
        ("* * * 13 *", "bad month"),
        ("* * * * XYZ", "bad day-of-week"),
        ("0 0 31 2 *", "bad day-of-month"),
        ("* * *", "wrong number of fields"),
        (5, "must be text"),
    ],
)
def test_a_bad_expression_says_which_field(text: Any, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        check_cron(text)


def test_a_short_name_says_which_fields_to_write() -> None:
    with pytest.raises(InvalidInput) as refused:
        check_cron("@daily")
    assert refused.value.hint == "write the fields: '0 0 * * *'"


@pytest.mark.parametrize("fields", sorted(set(ALIASES.values())))
def test_what_short_names_stand_for_is_understood(fields: str) -> None:
    assert check_cron(fields) == fields


async def test_workers_start_the_jobs_of_a_schedule_on_time(app: App) -> None:
    @app.job(queue="reports", priority=7)
    async def report(ctx: JobContext, day: str) -> str:
        assert ctx.scheduled_for is not None
        return f"{day} {ctx.scheduled_for.schedule} {ctx.scheduled_for.at.isoformat()}"

    at = datetime.now(UTC) + timedelta(seconds=1)
    schedule = await app.schedules.add("soon", report, "today", at=at)
    assert (schedule.next_at, schedule.kind, schedule.queue, schedule.priority) == (at, "report", "reports", 7)
    async with working(app, queues=("reports",)):
        await chores(app)
        fired = await app.schedules.get("soon")
        assert fired.last_job_id is not None, "stored ahead of its time"
        handle = app.jobs.handle(fired.last_job_id)
        assert await handle.result(PATIENCE) == f"today soon {at.isoformat()}"
    job = await handle.get()
    assert job.started_at is not None
    assert job.started_at >= at
    assert (fired.next_at, fired.last_at) == (None, at)
    [created, *_] = await app.jobs.events(job.id)
    assert created.payload["actor"] == "schedule soon"


def count_runs(kit: TestApp) -> list[datetime | None]:
    """Adds the handler `work`; the times that its jobs were for."""
    runs: list[datetime | None] = []

    @kit.job
    async def work(ctx: JobContext) -> None:
        runs.append(None if ctx.scheduled_for is None else ctx.scheduled_for.at)

    return runs


def test_the_testing_kit_fires_as_time_passes(kit: TestApp) -> None:
    runs = count_runs(kit)
    kit.run(kit.schedules.add("nightly", "work", cron="30 2 * * *", timezone="Europe/Berlin"))
    kit.run(kit.run_until_idle(advance=True))
    assert runs == [], "without an end it would never be idle"
    kit.run(kit.run_until_idle(advance="3d"))
    assert runs == [utc(2026, 3, 2, 1, 30), utc(2026, 3, 3, 1, 30), utc(2026, 3, 4, 1, 30)]


def test_what_was_missed_is_made_up_for_within_the_window(kit: TestApp) -> None:
    runs = count_runs(kit)
    kit.run(kit.schedules.add("hourly", "work", every="1h", catch_up="150m", overlap="enqueue"))
    kit.clock.advance("10h 30m")
    kit.run(kit.run_until_idle())
    assert runs == [START + timedelta(hours=hours) for hours in (8, 9, 10)]
    schedule = kit.run(kit.schedules.get("hourly"))
    assert (schedule.skipped, schedule.skipped_at) == ("missed", START + timedelta(hours=1))
    assert schedule.next_at == START + timedelta(hours=11)
    kit.run(kit.schedules.add("hourly", "work", every="1h", catch_up=0, overlap="enqueue"))
    kit.clock.advance("5h")
    kit.run(kit.run_until_idle())
    assert len(runs) == 3


async def test_two_leaders_start_one_job_for_each_time(app: App) -> None:
    @app.job
    async def work(ctx: JobContext) -> None: ...

    await app.schedules.add("busy", work, cron="*/5 * * * * *", overlap="enqueue")
    store = await app.open()
    for _ in range(3):
        for name in ("one", "two"):
            await Chores(store, name).run_once()
    jobs = (await app.jobs.list(kind="work", limit=1000)).items
    keys = [job.idempotency_key for job in jobs]
    assert 3 <= len(keys) <= 6
    assert len({*keys}) == len(keys)


async def test_a_new_firing_cancels_the_old_job(app: App) -> None:
    @app.job
    async def slow(ctx: JobContext) -> None:
        await ctx.sleep("long", "1h")

    await app.schedules.add("only-one", slow, every="1h", overlap=Overlap.CANCEL_OLD)
    old = await app.schedules.trigger("only-one")
    store = await app.open()
    schedule = await app.schedules.get("only-one")
    assert schedule.next_at is not None
    # an hour later, in the database
    assert await store.schedules.miss(schedule, next_at=await store.now())
    await chores(app)
    assert (await old.get()).status is Status.CANCELLED
    new = (await app.schedules.get("only-one")).last_job_id
    assert new not in (None, old.id)


async def test_jobs_are_spread_by_jitter_which_is_the_same_each_time(app: App) -> None:
    app.job(name="work")(_nothing)
    schedule = await app.schedules.add("spread", "work", every="1m", jitter="30s")
    times = [START + timedelta(minutes=n) for n in range(50)]
    late = [job_of(schedule, at).run_at - at for at in times]  # type: ignore[operator]  # a firing has a run_at
    assert all(timedelta() <= one < timedelta(seconds=30) for one in late)
    assert len({*late}) == 50
    assert [job_of(schedule, at).run_at - at for at in times] == late  # type: ignore[operator]  # as above
    assert job_of(replace(schedule, jitter=0.0), START).run_at == START


async def _nothing(ctx: JobContext) -> None: ...


async def test_backfill_starts_each_time_once(app: App) -> None:
    app.job(name="work")(_nothing)
    await app.schedules.add("daily", "work", cron="0 6 * * *", overlap="skip")
    first, last = utc(2026, 1, 1), utc(2026, 1, 4)
    dry = await app.schedules.backfill("daily", first, last, dry_run=True)
    assert dry == [utc(2026, 1, day, 6) for day in (1, 2, 3)]
    assert await app.jobs.count() == {}
    assert await app.schedules.backfill("daily", first, last) == dry
    await app.schedules.backfill("daily", first, utc(2026, 1, 5))
    async with working(app):
        jobs = (await app.jobs.list(kind="work", limit=9)).items
        assert len(jobs) == 4
        for job in jobs:
            await app.jobs.handle(job.id).result(PATIENCE)
    await app.schedules.add("often", "work", every=1)
    with pytest.raises(InvalidInput, match="more than 10,000"):
        await app.schedules.backfill("often", first, utc(2027, 1, 1))
    with pytest.raises(InvalidInput, match="start must be before end"):
        await app.schedules.backfill("daily", last, first)


async def test_a_backfill_starts_what_is_missing_after_the_input_has_changed(app: App) -> None:
    await app.schedules.add("daily", "elsewhere", 1, cron="0 6 * * *")
    await app.schedules.backfill("daily", utc(2026, 1, 1), utc(2026, 1, 3))
    await app.schedules.add("daily", "elsewhere", 2, cron="0 6 * * *")
    await app.schedules.backfill("daily", utc(2026, 1, 1), utc(2026, 1, 4))
    assert [job.payload for job in (await app.jobs.list()).items] == [2, 1, 1]


async def test_pause_resume_next_and_trigger(app: App) -> None:
    app.job(name="work")(_nothing)
    added = await app.schedules.add("hourly", "work", cron="0 * * * *")
    assert added.next_at is not None
    times = [added.next_at + timedelta(hours=n) for n in range(3)]
    assert await app.schedules.next("hourly", 3) == times
    paused = await app.schedules.pause("hourly")
    assert paused.paused
    assert await app.schedules.next("hourly", 3) == times
    handle = await app.schedules.trigger("hourly")
    async with working(app):
        await handle.result(PATIENCE)
    assert (await app.schedules.resume("hourly")).next_at == added.next_at
    with pytest.raises(InvalidInput, match="count"):
        await app.schedules.next("hourly", 0)
    await app.schedules.remove("hourly")
    with pytest.raises(NotFound, match="no schedule has the id 'hourly'"):
        await app.schedules.get("hourly")


async def test_many_that_wait_keep_no_other_from_firing(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than one look finds wait for the jobs of their last firings."""
    monkeypatch.setattr("perdure.runtime.schedule_firing.BATCH", 2)
    app.job(name="work")(_nothing)
    store = await app.open()
    for number in range(5):
        waiting = await app.schedules.add(f"waits-{number}", "work", every="1h")
        await app.schedules.trigger(waiting.id)
        assert await store.schedules.miss(waiting, next_at=await store.now() + timedelta(seconds=5))
    later = await app.schedules.add("later", "work", at=datetime.now(UTC) + timedelta(seconds=15))
    await chores(app)
    assert (await app.schedules.get("later")).last_at == later.at


async def test_a_firing_that_is_a_little_late_is_not_missed(app: App) -> None:
    app.job(name="work")(_nothing)
    late = await app.schedules.add("late", "work", at=datetime.now(UTC) - timedelta(seconds=5), catch_up=0)
    missed = await app.schedules.add("missed", "work", at=datetime.now(UTC) - timedelta(minutes=2), catch_up=0)
    await chores(app)
    assert (await app.schedules.get(late.id)).last_at == late.at
    assert (await app.schedules.get(missed.id)).skipped == "missed"


async def test_a_schedule_that_cannot_fire_stops_no_other(app: App, caplog: pytest.LogCaptureFixture) -> None:
    app.job(name="work")(_nothing)
    now = datetime.now(UTC)
    good: Schedule = await app.schedules.add("zz-good", "work", at=now + timedelta(seconds=2))
    store = await app.open()
    bad = await app.schedules.add("bad", "work", cron="0 * * * *", timezone="Europe/Berlin")
    broken = {name: getattr(bad, name) for name in bad.__dataclass_fields__}
    from perdure.model.schedules import NewSchedule

    fields = {name: broken[name] for name in NewSchedule._fields} | {
        "timezone": "Mars/Base",
        "payload": "null",
        "next_at": now,
    }
    await store.schedules.put_schedule(NewSchedule(**fields))
    await chores(app)
    assert (await app.schedules.get("zz-good")).last_at == good.at


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "one of cron, every and at"),
        ({"cron": "* * * * *", "every": 5}, "one of cron, every and at"),
        ({"every": 0.5}, "at least 1 s"),
        ({"every": -1}, "every"),
        ({"cron": "nope"}, "wrong number of fields"),
        ({"cron": "0 0 * * *", "timezone": "Mars/Base"}, "unknown time zone 'Mars/Base'"),
        ({"cron": "0 0 * * *", "timezone": "../etc"}, "unknown time zone"),
        ({"at": datetime(2026, 1, 1)}, "timezone-aware"),  # noqa: DTZ001  it is refused
        ({"every": 5, "overlap": "maybe"}, "overlap must be skip, enqueue, cancel-old"),
        ({"every": 5, "catch_up": -1}, "catch_up"),
        ({"every": 5, "jitter": "soon"}, "jitter"),
        ({"every": 5, "priority": 10}, "priority"),
        ({"every": 5, "croon": 1}, "unknown options of a schedule: croon"),
    ],
)
async def test_bad_input_stores_nothing(app: App, options: Any, says: str) -> None:
    app.job(name="work")(_nothing)
    with pytest.raises(ValueError, match=says):
        await app.schedules.add("s", "work", **options)
    with pytest.raises(InvalidInput, match="id is 1 to 100"):
        await app.schedules.add("", "work", every=5)
    with pytest.raises(InvalidInput, match="takes no input"):
        await app.schedules.add("s", "work", 7, every=5)
    with pytest.raises(UnknownHandler):
        await app.schedules.add("s", "wrok", every=5)
    assert await app.schedules.list() == []


async def test_a_round_of_the_chores_makes_up_for_many_times(app: App) -> None:
    app.job(name="work")(_nothing)
    schedule = await app.schedules.add("often", "work", cron="* * * * *", overlap="enqueue")
    store = await app.open()
    assert await store.schedules.miss(schedule, next_at=schedule.anchor - timedelta(minutes=30))
    await chores(app)
    assert (await app.jobs.count(by="kind"))["work"] >= 25
