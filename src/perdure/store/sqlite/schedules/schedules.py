"""The schedules of one tenant as rows."""

from __future__ import annotations

import sqlite3
from datetime import datetime
from typing import Any
from uuid import UUID

from perdure.model.errors import PerdureError
from perdure.model.jobs import NewJob
from perdure.model.schedules import NewSchedule, Overlap, Schedule, Skipped
from perdure.store.errors import schedule_not_found
from perdure.store.protocol.schedules import Due, Fired
from perdure.store.schedule_rows import is_as_read, schedule_of, waits_for_last
from perdure.store.sqlite.engine.batch import NEWS, NOTHING, WORK
from perdure.store.sqlite.engine.codec import CODEC, micros, span, stored
from perdure.store.sqlite.engine.engine import Engine
from perdure.store.sqlite.engine.statements import SQL
from perdure.store.sqlite.jobs.enqueue import enqueue_one, lookup


class SqliteSchedules:
    """See `protocol.ScheduleStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._engine = engine
        self._tenant_id = tenant_id

    async def put_schedule(self, schedule: NewSchedule) -> Schedule:
        """See `protocol.ScheduleStore.put_schedule`."""
        values = {name: stored(value) for name, value in schedule._asdict().items()}
        return await self._change("put_schedule", schedule.id, values)

    async def get_schedule(self, id: str) -> Schedule:
        """See `protocol.ScheduleStore.get_schedule`."""
        row = await self._engine.row("get_schedule", tenant_id=self._tenant_id, id=id)
        if row is None:
            raise schedule_not_found(id)
        return schedule_of(row, CODEC)

    async def list_schedules(self, *, limit: int, after: str | None = None) -> list[Schedule]:
        """See `protocol.ScheduleStore.list_schedules`."""
        rows = await self._engine.rows("list_schedules", tenant_id=self._tenant_id, limit=limit, after=after)
        return [schedule_of(row, CODEC) for row in rows]

    async def remove_schedule(self, id: str) -> None:
        """See `protocol.ScheduleStore.remove_schedule`."""
        place = {"tenant_id": self._tenant_id, "id": id}

        def remove(conn: sqlite3.Connection, now: int) -> None:
            del now
            if conn.execute(SQL["remove_schedule"], place).fetchone() is None:
                raise schedule_not_found(id)

        await self._engine.write(remove, NOTHING)

    async def pause_schedule(self, id: str) -> Schedule:
        """See `protocol.ScheduleStore.pause_schedule`."""
        return await self._change("pause_schedule", id, {})

    async def resume_schedule(self, id: str, next_at: datetime | None) -> Schedule:
        """See `protocol.ScheduleStore.resume_schedule`."""
        return await self._change("resume_schedule", id, {"next_at": micros(next_at)})

    async def due_schedules(self, *, ahead: float, limit: int) -> list[Due]:
        """See `protocol.ScheduleStore.due_schedules`."""
        now = micros(await self._engine.now())
        assert now is not None
        rows = await self._engine.rows(
            "due_schedules", tenant_id=self._tenant_id, now=now, until=now + span(ahead), limit=limit
        )
        return [Due(schedule_of(row, CODEC), CODEC.time(row["now"]), bool(row["live"])) for row in rows]

    async def fire(self, schedule: Schedule, job: NewJob, *, next_at: datetime | None, early: bool) -> Fired | None:
        """See `protocol.ScheduleStore.fire`."""
        place = {"tenant_id": self._tenant_id, "id": schedule.id}
        then = {**place, "next_at": micros(next_at), "at": micros(schedule.next_at)}

        def fire(conn: sqlite3.Connection, now: int) -> Fired | None:
            row = conn.execute(SQL["lock_schedule"], place).fetchone()
            if not is_as_read(row, schedule, CODEC):
                return None
            if waits_for_last(schedule.overlap, live=bool(row["live"])):
                if early or schedule.overlap is Overlap.CANCEL_OLD:
                    return Fired()
                conn.execute(SQL["schedule_skipped"], {**then, "skipped": Skipped.OVERLAP})
                return Fired(skipped=Skipped.OVERLAP)
            job_id = self._enqueue(conn, now, job)
            conn.execute(SQL["schedule_fired"], {**then, "job_id": str(job_id)})
            return Fired(job_id)

        return await self._engine.write(fire, WORK | NEWS)

    async def miss(self, schedule: Schedule, *, next_at: datetime | None) -> bool:
        """See `protocol.ScheduleStore.miss`."""
        place = {"tenant_id": self._tenant_id, "id": schedule.id}
        then = {**place, "next_at": micros(next_at), "at": micros(schedule.next_at), "skipped": Skipped.MISSED}

        def miss(conn: sqlite3.Connection, now: int) -> bool:
            del now
            if not is_as_read(conn.execute(SQL["lock_schedule"], place).fetchone(), schedule, CODEC):
                return False
            conn.execute(SQL["schedule_skipped"], then)
            return True

        return await self._engine.write(miss, NOTHING)

    async def trigger(self, id: str, job: NewJob) -> UUID:
        """See `protocol.ScheduleStore.trigger`."""
        place = {"tenant_id": self._tenant_id, "id": id}

        def trigger(conn: sqlite3.Connection, now: int) -> UUID:
            row = conn.execute(SQL["lock_schedule"], place).fetchone()
            if row is None:
                raise schedule_not_found(id)
            job_id = self._enqueue(conn, now, job)
            values = {**place, "next_at": row["next_at"], "at": micros(job.run_at), "job_id": str(job_id)}
            conn.execute(SQL["schedule_fired"], values)
            return job_id

        return await self._engine.write(trigger, WORK | NEWS)

    def _enqueue(self, conn: sqlite3.Connection, now: int, job: NewJob) -> UUID:
        """The job's id, or that of the job that has its key already."""
        known = conn.execute(SQL["find_enqueued"], lookup(self._tenant_id, job)).fetchone()
        if known is not None:
            return UUID(known["id"])
        enqueued = enqueue_one(conn, now, self._tenant_id, job)
        if isinstance(enqueued, PerdureError):
            raise enqueued
        return enqueued.id

    async def _change(self, statement: str, id: str, values: dict[str, Any]) -> Schedule:
        def change(conn: sqlite3.Connection, now: int) -> Schedule:
            row = conn.execute(
                SQL[statement], {**values, "tenant_id": self._tenant_id, "id": id, "now": now}
            ).fetchone()
            if row is None:
                raise schedule_not_found(id)
            return schedule_of(row, CODEC)

        return await self._engine.write(change, NOTHING)
