"""Schedules: when jobs of a kind are started by themselves."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

DEFAULT_CATCH_UP = 3600.0
"""Seconds: firings that fell due while no worker ran are made up for if they are not older."""
MOST_BACKFILLED = 10_000
"""Jobs of one backfill."""
_KEY = "schedule:"


class Overlap(StrEnum):
    """What a firing does while the job of the one before has not ended."""

    SKIP = "skip"
    """It starts no job."""
    ENQUEUE = "enqueue"
    """It starts a job all the same."""
    CANCEL_OLD = "cancel-old"
    """It cancels that job and starts one."""


class Skipped(StrEnum):
    """Why a firing started no job."""

    OVERLAP = "overlap"
    """The job of the one before had not ended."""
    MISSED = "missed"
    """No worker ran at that time, and it was older than `catch_up` when one did."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule. One of cron, every and at is set.

    id: unique within the tenant. kind, payload, queue, priority, max_retries, concurrency_key, max_concurrent: of the jobs that
    it starts; None: what the handler's policy says. cron: five fields, or six with seconds first, in `timezone` (an IANA name).
    every: seconds, counted from `anchor` (UTC). at: once (UTC). overlap: what a firing does while the last job has not ended.
    catch_up: seconds; what was missed and is not older is made up for. jitter: seconds; each job starts up to so much later than
    its time. next_at: the next firing (UTC); None: paused, or nothing is left. last_at, last_job_id: the last firing that started
    a job. skipped_at, skipped: the last one that started none, and why.
    """

    id: str
    kind: str
    payload: Any
    cron: str | None
    every: float | None
    at: datetime | None
    timezone: str
    anchor: datetime
    queue: str
    priority: int
    max_retries: int | None
    concurrency_key: str | None
    max_concurrent: int | None
    overlap: Overlap
    catch_up: float
    jitter: float
    next_at: datetime | None
    paused_at: datetime | None
    last_at: datetime | None
    last_job_id: UUID | None
    skipped_at: datetime | None
    skipped: Skipped | None
    created_at: datetime
    updated_at: datetime
    set_by: str

    @property
    def paused(self) -> bool:
        """Whether it starts no jobs until it is resumed."""
        return self.paused_at is not None

    @property
    def rule(self) -> str:
        """When it fires, in a few words."""
        if self.cron is not None:
            return f"{self.cron} {self.timezone}"
        return f"every {self.every:g}s" if self.every is not None else "once"


class NewSchedule(NamedTuple):
    """A schedule to be stored, already checked. payload: JSON text. The rest as in `Schedule`."""

    id: str
    kind: str
    payload: str
    cron: str | None
    every: float | None
    at: datetime | None
    timezone: str
    anchor: datetime
    queue: str
    priority: int
    max_retries: int | None
    concurrency_key: str | None
    max_concurrent: int | None
    overlap: Overlap
    catch_up: float
    jitter: float
    next_at: datetime | None
    set_by: str


@dataclass(frozen=True, slots=True)
class ScheduledFor:
    """Which firing started a job. schedule: its id. at: the time that it was for (UTC), without jitter and delays."""

    schedule: str
    at: datetime


def firing_key(schedule_id: str, at: datetime) -> str:
    """The idempotency key of the job of a firing: so no firing starts two."""
    return f"{_KEY}{schedule_id}@{at.astimezone(UTC).isoformat()}"


def scheduled_for(idempotency_key: str | None) -> ScheduledFor | None:
    """The firing that a job with this key is of; None if it is of none."""
    if idempotency_key is None or not idempotency_key.startswith(_KEY):
        return None
    id, found, at = idempotency_key.removeprefix(_KEY).rpartition("@")
    try:
        return ScheduledFor(id, datetime.fromisoformat(at)) if found else None
    except ValueError:
        return None  # a key of a caller that looks alike
