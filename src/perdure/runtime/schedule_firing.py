"""Firing schedules: what one worker at a time does for all."""

from __future__ import annotations

import contextlib
import hashlib
import json
from datetime import datetime, timedelta
from uuid import UUID
from zoneinfo import ZoneInfoNotFoundError

import structlog

from perdure.model.errors import Conflict, NotFound, PerdureError
from perdure.model.ids import uuid7
from perdure.model.jobs import NewJob
from perdure.model.schedules import Overlap, Schedule, firing_key
from perdure.runtime.firings import MOMENT, next_firing
from perdure.store.protocol import Store
from perdure.store.protocol.schedules import Due

AHEAD = 20.0
"""Seconds before its time that a firing stores its job, with that time as its `run_at`: so the job starts on time although the
chore is done only every few seconds."""
BATCH = 100
PASSES = 100
"""Firings of a schedule in a round of the chores, which then go on: thousands that were missed do not hold up the others."""
LEADS_FOR = 15.0
"""Seconds that a worker fires alone after it has fired. Two that fire at once start no job twice."""

LATE = 30.0
"""Seconds that a firing may be late, as where a leader died, and is not missed, whatever `catch_up` says."""

log = structlog.get_logger("perdure.schedules")


class Firing:
    """Makes the firings that are due, or soon will be."""

    def __init__(self, store: Store, worker_id: str) -> None:
        self._store = store
        self._worker_id = worker_id
        self._left: set[str] = set()

    async def make_many(self) -> bool:
        """Make what is due, at most PASSES firings of each schedule; True if no more are due. Raises StoreError."""
        for _ in range(PASSES):
            if await self.make_some():
                return True
        return False

    async def make_some(self) -> bool:
        """Make one firing of each schedule that has one, of at most BATCH; True if no more are due. Raises StoreError."""
        found = await self._store.schedules.due_schedules(ahead=AHEAD, limit=BATCH + len(self._left))
        due = [one for one in found if one.schedule.id not in self._left]
        # asked for only where something is due: so workers without schedules write nothing
        if not due or not await self._store.retention.lead("schedules", holder=self._worker_id, ttl=LEADS_FOR):
            return True
        for one in due:
            try:
                if not await self._fire(one):
                    self._left.add(one.schedule.id)
            except (PerdureError, ValueError, ZoneInfoNotFoundError) as error:
                # one that cannot be stored, or whose time zone this machine does not know, keeps no other from firing
                self._left.add(one.schedule.id)
                log.error("a schedule cannot fire", schedule=one.schedule.id, error=str(error))  # noqa: TRY400  its text says it all
        return False

    async def _fire(self, due: Due) -> bool:
        """False if it is left for the next round."""
        schedule, now, live = due
        at = schedule.next_at
        assert at is not None
        oldest = now - timedelta(seconds=max(schedule.catch_up, LATE))
        if at < oldest:
            log.warning("firings were missed", schedule=schedule.id, since=at.isoformat())
            return await self._store.schedules.miss(schedule, next_at=next_firing(schedule, oldest - MOMENT))
        early = at > now
        if live and not early and schedule.overlap is Overlap.CANCEL_OLD and schedule.last_job_id is not None:
            await self._cancel(schedule.last_job_id, schedule)
        following = next_firing(schedule, at)
        fired = await self._store.schedules.fire(schedule, job_of(schedule, at), next_at=following, early=early)
        if fired is None:
            return True  # another leader was faster, or it was changed
        if fired.job_id is not None:
            log.info("a schedule fired", schedule=schedule.id, job_id=str(fired.job_id), at=at.isoformat())
        elif fired.skipped is not None:
            log.info("a firing was skipped", schedule=schedule.id, why=fired.skipped, at=at.isoformat())
        return fired.job_id is not None or fired.skipped is not None

    async def _cancel(self, job_id: UUID, schedule: Schedule) -> None:
        with contextlib.suppress(Conflict, NotFound):  # it has ended
            await self._store.jobs.cancel(job_id, note=_note(schedule))


def job_of(schedule: Schedule, at: datetime, *, key: str | None = None) -> NewJob:
    """The job of a firing. key: where it is not that of the firing."""
    return NewJob(
        id=uuid7(),
        kind=schedule.kind,
        payload=json.dumps(schedule.payload),
        queue=schedule.queue,
        priority=schedule.priority,
        max_retries=schedule.max_retries,
        concurrency_key=schedule.concurrency_key,
        max_concurrent=schedule.max_concurrent,
        run_at=at + timedelta(seconds=_jitter(schedule, at)),
        idempotency_key=key or firing_key(schedule.id, at),
        note=_note(schedule),
    )


def _note(schedule: Schedule) -> str:
    return json.dumps({"actor": f"schedule {schedule.id}", "via": "schedule"}, ensure_ascii=False)


def _jitter(schedule: Schedule, at: datetime) -> float:
    """The same each time, so that a firing that is tried again has the same job."""
    if not schedule.jitter:
        return 0.0
    digest = hashlib.sha256(firing_key(schedule.id, at).encode()).digest()
    return schedule.jitter * int.from_bytes(digest[:8], "big") / 2**64
