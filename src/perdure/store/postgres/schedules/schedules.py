"""The schedules of one tenant as rows."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from perdure.model.jobs import NewJob
from perdure.model.schedules import NewSchedule, Overlap, Schedule, Skipped
from perdure.store.errors import schedule_not_found
from perdure.store.postgres.engine.codec import CODEC
from perdure.store.postgres.engine.database import Transaction
from perdure.store.postgres.engine.engine import Engine
from perdure.store.postgres.jobs.enqueue_values import one_job
from perdure.store.protocol.schedules import Due, Fired
from perdure.store.schedule_rows import is_as_read, schedule_of, waits_for_last


class PostgresSchedules:
    """See `protocol.ScheduleStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._database = engine.database
        self._notifier = engine.notifier
        self._tenant_id = tenant_id

    async def put_schedule(self, schedule: NewSchedule) -> Schedule:
        """See `protocol.ScheduleStore.put_schedule`."""
        row = await self._database.row("put_schedule", **schedule._asdict(), tenant_id=self._tenant_id)
        assert row is not None
        return schedule_of(row, CODEC)

    async def get_schedule(self, id: str) -> Schedule:
        """See `protocol.ScheduleStore.get_schedule`."""
        return await self._one("get_schedule", id)

    async def list_schedules(self, *, limit: int, after: str | None = None) -> list[Schedule]:
        """See `protocol.ScheduleStore.list_schedules`."""
        rows = await self._database.rows("list_schedules", tenant_id=self._tenant_id, limit=limit, after=after)
        return [schedule_of(row, CODEC) for row in rows]

    async def remove_schedule(self, id: str) -> None:
        """See `protocol.ScheduleStore.remove_schedule`."""
        if await self._database.row("remove_schedule", tenant_id=self._tenant_id, id=id) is None:
            raise schedule_not_found(id)

    async def pause_schedule(self, id: str) -> Schedule:
        """See `protocol.ScheduleStore.pause_schedule`."""
        return await self._one("pause_schedule", id)

    async def resume_schedule(self, id: str, next_at: datetime | None) -> Schedule:
        """See `protocol.ScheduleStore.resume_schedule`."""
        return await self._one("resume_schedule", id, next_at=next_at)

    async def due_schedules(self, *, ahead: float, limit: int) -> list[Due]:
        """See `protocol.ScheduleStore.due_schedules`."""
        rows = await self._database.rows("due_schedules", tenant_id=self._tenant_id, ahead=ahead, limit=limit)
        return [Due(schedule_of(row, CODEC), CODEC.time(row["now"]), row["live"]) for row in rows]

    async def fire(self, schedule: Schedule, job: NewJob, *, next_at: datetime | None, early: bool) -> Fired | None:
        """See `protocol.ScheduleStore.fire`."""
        place = {"tenant_id": self._tenant_id, "id": schedule.id}

        async def fire(tx: Transaction) -> Fired | None:
            row = await tx.row("lock_schedule", **place)
            if row is None or not is_as_read(row, schedule, CODEC):
                return None
            if waits_for_last(schedule.overlap, live=row["live"]):
                if early or schedule.overlap is Overlap.CANCEL_OLD:
                    return Fired()
                skipped = Skipped.OVERLAP
                await tx.rows("schedule_skipped", **place, next_at=next_at, at=schedule.next_at, skipped=skipped)
                return Fired(skipped=skipped)
            job_id = await self._enqueue(tx, job)
            await tx.rows("schedule_fired", **place, next_at=next_at, at=schedule.next_at, job_id=job_id)
            return Fired(job_id)

        fired = await self._database.transact(fire)
        if fired is not None and fired.job_id is not None:
            self._notifier.notify(self._tenant_id, "work", "news")
        return fired

    async def miss(self, schedule: Schedule, *, next_at: datetime | None) -> bool:
        """See `protocol.ScheduleStore.miss`."""
        place = {"tenant_id": self._tenant_id, "id": schedule.id}

        async def miss(tx: Transaction) -> bool:
            row = await tx.row("lock_schedule", **place)
            if not is_as_read(row, schedule, CODEC):
                return False
            await tx.rows("schedule_skipped", **place, next_at=next_at, at=schedule.next_at, skipped=Skipped.MISSED)
            return True

        return await self._database.transact(miss)

    async def trigger(self, id: str, job: NewJob) -> UUID:
        """See `protocol.ScheduleStore.trigger`."""
        place = {"tenant_id": self._tenant_id, "id": id}

        async def trigger(tx: Transaction) -> UUID:
            row = await tx.row("lock_schedule", **place)
            if row is None:
                raise schedule_not_found(id)
            job_id = await self._enqueue(tx, job)
            await tx.rows("schedule_fired", **place, next_at=row["next_at"], at=job.run_at, job_id=job_id)
            return job_id

        job_id = await self._database.transact(trigger)
        self._notifier.notify(self._tenant_id, "work", "news")
        return job_id

    async def _enqueue(self, tx: Transaction, job: NewJob) -> UUID:
        """The job's id, or that of the job that has its key already."""
        stored = await tx.row("enqueue_one", **one_job(job, self._tenant_id))
        if stored is None:
            stored = await tx.row("job_of_key", tenant_id=self._tenant_id, kind=job.kind, key=job.idempotency_key)
        assert stored is not None
        found: UUID = stored["id"]
        return found

    async def _one(self, statement: str, id: str, **values: object) -> Schedule:
        row = await self._database.row(statement, tenant_id=self._tenant_id, id=id, **values)
        if row is None:
            raise schedule_not_found(id)
        return schedule_of(row, CODEC)
