"""What a database can say at a glance about the jobs that are not finished, for dashboards and alerts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from perdure.model.approvals import ApprovalStatus
from perdure.model.states import Status


@dataclass(frozen=True, slots=True)
class LiveJobs:
    """The unfinished jobs of one kind, queue and status. oldest_ready: seconds that the one which has been due longest has
    waited for a worker, None where none is due."""

    kind: str
    queue: str
    status: Status
    count: int
    oldest_ready: float | None


@dataclass(frozen=True, slots=True)
class Decided:
    """An answer somebody gave, or an expiry. waited: seconds between asking and deciding."""

    approval_id: UUID
    status: ApprovalStatus
    via: str | None
    at: datetime
    waited: float


@dataclass(frozen=True, slots=True)
class Figures:
    """All of it at one moment of database time (UTC). oldest_approval: seconds since the oldest open question was asked."""

    at: datetime
    jobs: tuple[LiveJobs, ...]
    approvals_pending: int
    oldest_approval: float | None
