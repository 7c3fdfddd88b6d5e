"""Schedules: jobs that are started by themselves. Part of `protocol.Store`."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Protocol
from uuid import UUID

from perdure.model.jobs import NewJob
from perdure.model.schedules import NewSchedule, Schedule, Skipped


class Due(NamedTuple):
    """A schedule whose next firing has come, or is near. now: database time. live: the job of the last firing has not ended."""

    schedule: Schedule
    now: datetime
    live: bool


class Fired(NamedTuple):
    """What a firing did. job_id: of the job that it started, or that has its key. Both None: it is to be tried later."""

    job_id: UUID | None = None
    skipped: Skipped | None = None


class ScheduleStore(Protocol):
    """The schedules of one tenant."""

    async def put_schedule(self, schedule: NewSchedule) -> Schedule:
        """Store a schedule, or change the one of this id. With the times that it had it keeps its next firing and its anchor; a
        paused one stays paused."""
        ...

    async def get_schedule(self, id: str) -> Schedule:
        """One schedule. Raises NotFound."""
        ...

    async def list_schedules(self, *, limit: int, after: str | None = None) -> list[Schedule]:
        """Those after an id, in the order of their ids."""
        ...

    async def remove_schedule(self, id: str) -> None:
        """Delete a schedule; its jobs stay. Raises NotFound."""
        ...

    async def pause_schedule(self, id: str) -> Schedule:
        """From now on it starts no jobs. Raises NotFound."""
        ...

    async def resume_schedule(self, id: str, next_at: datetime | None) -> Schedule:
        """A paused schedule fires next at `next_at`; another one is not changed. Raises NotFound."""
        ...

    async def due_schedules(self, *, ahead: float, limit: int) -> list[Due]:
        """Those whose next firing is at most `ahead` seconds from now, the earliest first. It reads no others."""
        ...

    async def fire(self, schedule: Schedule, job: NewJob, *, next_at: datetime | None, early: bool) -> Fired | None:
        """Make the next firing of a schedule, as it was read: store the job, if its policy for overlaps lets it, and set the next
        firing; in one transaction. None, and nothing is written, if the schedule has been changed or fired since.

        early: its time has not come: what would be skipped or needs a cancel is not decided yet. A job whose key is there already
        is not stored again.
        """
        ...

    async def miss(self, schedule: Schedule, *, next_at: datetime | None) -> bool:
        """Leave out the next firing of a schedule, as it was read; False if it has been changed or fired since."""
        ...

    async def trigger(self, id: str, job: NewJob) -> UUID:
        """Store a job that counts as the last one of the schedule; its next firing stays. Raises NotFound."""
        ...
