"""`client.schedules`: jobs that are started by themselves."""

from __future__ import annotations

import builtins
import itertools
from datetime import datetime, timedelta
from typing import Any, TypedDict, Unpack

from perdure.model.errors import IdempotencyConflict, InvalidInput
from perdure.model.ids import uuid7
from perdure.model.jobs import JobFilter, NewJob
from perdure.model.schedules import DEFAULT_CATCH_UP, MOST_BACKFILLED, NewSchedule, Overlap, Schedule
from perdure.model.timing import Duration
from perdure.runtime.client.base import ClientPart, Scope
from perdure.runtime.client.enqueue import EnqueueOptions
from perdure.runtime.client.jobs import Jobs
from perdure.runtime.firings import LEAST_INTERVAL, check_cron, check_timezone, firings, next_firing
from perdure.runtime.handle import Handle
from perdure.runtime.registry import Handler
from perdure.runtime.schedule_firing import job_of
from perdure.runtime.validation import check_moment, check_seconds

MOST_TIMES = 1000


class ScheduleOptions(TypedDict, total=False):
    """When a schedule fires and what its jobs are like. One of cron, every and at is needed.

    cron: 'minute hour day-of-month month day-of-week', or six fields with seconds first, in `timezone` (IANA; default UTC).
    every: seconds or text, at least 1 s. at: once, timezone-aware. overlap: what a firing does while the job of the one before
    has not ended: skip (default), enqueue, or cancel-old. catch_up: seconds or text; firings that fell due while no worker ran
    are made up for if they are not older; default 1 h. jitter: seconds or text; each job starts up to so much later. queue,
    priority, max_retries: as for `enqueue`.
    """

    cron: str
    every: Duration
    at: datetime
    timezone: str
    overlap: str
    catch_up: Duration
    jitter: Duration
    queue: str
    priority: int
    max_retries: int


class Schedules(ClientPart):
    """Jobs that are started by themselves: by cron in a time zone, at an interval, or once.

    Workers fire them. Each firing starts one job, whatever crashes: its idempotency key names schedule and time.
    """

    def __init__(self, scope: Scope, jobs: Jobs) -> None:
        super().__init__(scope)
        self._jobs = jobs

    async def add(
        self, id: str, job: Handler[Any, Any] | str, input: Any = None, /, **options: Unpack[ScheduleOptions]
    ) -> Schedule:
        """Store a schedule, or change the one of this id: call it each time your program starts. With the same times it keeps its
        next firing; a paused schedule stays paused.

        Raises InvalidInput (which says what of cron or time zone is wrong), UnknownHandler, NotJson, TooLarge, InvalidPriority.
        """
        unknown = options.keys() - ScheduleOptions.__annotations__.keys()
        if unknown:
            known = ", ".join(sorted(ScheduleOptions.__annotations__))
            raise InvalidInput(f"unknown options of a schedule: {', '.join(sorted(unknown))}", hint=f"known: {known}")
        if not 1 <= len(id) <= 100 or not id.isprintable() or "@" in id:
            raise InvalidInput(f"a schedule's id is 1 to 100 printable characters without '@', got {id!r:.120}")
        wanted: EnqueueOptions = {}
        if "queue" in options:
            wanted["queue"] = options["queue"]
        if "priority" in options:
            wanted["priority"] = options["priority"]
        if "max_retries" in options:
            wanted["max_retries"] = options["max_retries"]
        new = self._jobs.prepared(job, input, wanted)
        store = await self._store()
        if new.concurrency_key is not None and (per_minute := self._jobs.rate_of(job, wanted)) is not None:
            await store.limits.say_rate(new.concurrency_key, per_minute)
        now = await store.now()
        schedule = NewSchedule(
            id=id,
            kind=new.kind,
            payload=new.payload,
            **_rule(options),
            anchor=now,
            queue=new.queue,
            priority=new.priority,
            max_retries=new.max_retries,
            concurrency_key=new.concurrency_key,
            max_concurrent=new.max_concurrent,
            overlap=_overlap(options.get("overlap", Overlap.SKIP)),
            catch_up=check_seconds(options.get("catch_up", DEFAULT_CATCH_UP), "catch_up"),
            jitter=check_seconds(options.get("jitter", 0), "jitter"),
            next_at=None,
            set_by=self._scope.actor,
        )
        # a time of today that has just passed is still made up for
        following = schedule.at if schedule.at is not None else next_firing(schedule, now)
        return await store.schedules.put_schedule(schedule._replace(next_at=following))

    async def get(self, id: str) -> Schedule:
        """One schedule. Raises NotFound."""
        return await (await self._store()).schedules.get_schedule(id)

    async def list(self, *, limit: int = 1000, after: str | None = None) -> builtins.list[Schedule]:
        """The schedules in the order of their ids, at most `limit`; after: only those whose id comes later."""
        return await (await self._store()).schedules.list_schedules(limit=limit, after=after)

    async def next(self, id: str, count: int = 5) -> builtins.list[datetime]:
        """Its next times (UTC), also if it is paused. count: 1 to 1,000. Raises NotFound, InvalidInput."""
        if not 1 <= count <= MOST_TIMES:
            raise InvalidInput(f"count must be from 1 to {MOST_TIMES}, got {count}")
        store = await self._store()
        schedule = await store.schedules.get_schedule(id)
        start = schedule.next_at or next_firing(schedule, await store.now())
        if start is None:
            return []
        return [*itertools.islice(firings(schedule, start, start + timedelta(days=36525)), count)]

    async def pause(self, id: str) -> Schedule:
        """Let it start no jobs until it is resumed. Jobs are stored up to 20 s ahead of their time: such a one still runs. Raises
        NotFound."""
        return await (await self._store()).schedules.pause_schedule(id)

    async def resume(self, id: str) -> Schedule:
        """Let it go on: what fell due while it was paused is left out. Raises NotFound."""
        store = await self._store()
        schedule = await store.schedules.get_schedule(id)
        return await store.schedules.resume_schedule(id, next_firing(schedule, await store.now()))

    async def trigger(self, id: str) -> Handle[Any]:
        """Start a job of it now, also if it is paused, whatever its policy for overlaps. Raises NotFound."""
        store = await self._store()
        schedule = await store.schedules.get_schedule(id)
        now = await store.now()
        job = job_of(schedule, now, key=f"trigger:{id}@{uuid7()}")._replace(
            run_at=now, note=self._scope.note(None, schedule=id)
        )
        return self._jobs.handle(await store.schedules.trigger(id, job))

    async def backfill(
        self, id: str, start: datetime, end: datetime, *, dry_run: bool = False
    ) -> builtins.list[datetime]:
        """Start the jobs of all its times from `start` on, before `end`, at once and in one transaction; those that exist are not
        started again. Return the times (UTC), at most 10,000. dry_run: only return them.

        Raises NotFound, InvalidInput.
        """
        first, last = check_moment(start, "start"), check_moment(end, "end")
        if first is None or last is None or first >= last:
            raise InvalidInput("start must be before end")
        store = await self._store()
        schedule = await store.schedules.get_schedule(id)
        times = [*itertools.islice(firings(schedule, first, last), MOST_BACKFILLED + 1)]
        if len(times) > MOST_BACKFILLED:
            raise InvalidInput(
                f"more than {MOST_BACKFILLED:,} firings lie between start and end", hint="choose a shorter time"
            )
        if not dry_run and times:
            note = self._scope.note(None, schedule=id)
            now = await store.now()
            await self._store_missing([job_of(schedule, at)._replace(run_at=now, note=note) for at in times])
        return times

    async def _store_missing(self, jobs: builtins.list[NewJob]) -> None:
        """Store these jobs but those whose keys exist, also where these have another input: the schedule has changed since."""
        jobs_store = (await self._store()).jobs
        try:
            await jobs_store.enqueue_many(jobs)
        except IdempotencyConflict:
            missing = [
                job
                for job in jobs
                if not await jobs_store.count_jobs(
                    JobFilter(kinds=(job.kind,), idempotency_key=job.idempotency_key), by="kind"
                )
            ]
            await jobs_store.enqueue_many(missing)

    async def remove(self, id: str) -> None:
        """Delete it; its jobs stay. Raises NotFound."""
        await (await self._store()).schedules.remove_schedule(id)


def _rule(options: ScheduleOptions) -> dict[str, Any]:
    if len(options.keys() & {"cron", "every", "at"}) != 1:
        raise InvalidInput(
            "a schedule needs one of cron, every and at", hint="for example cron='0 3 * * *' or every='15m'"
        )
    every = check_seconds(options["every"], "every") if "every" in options else None
    if every is not None and every < LEAST_INTERVAL:
        raise InvalidInput(f"every must be at least {LEAST_INTERVAL:g} s, got {every:g}")
    return {
        "cron": check_cron(options["cron"]) if "cron" in options else None,
        "every": every,
        "at": check_moment(options["at"], "at") if "at" in options else None,
        "timezone": check_timezone(options.get("timezone", "UTC")),
    }


def _overlap(value: str) -> Overlap:
    try:
        return Overlap(value)
    except ValueError:
        raise InvalidInput(f"overlap must be {', '.join(Overlap)}, got {value!r:.60}") from None
