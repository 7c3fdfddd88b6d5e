"""Numbers of unfinished jobs and open approvals, for dashboards and alerts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from perdure.model.approvals import ApprovalStatus
from perdure.model.states import Status


@dataclass(frozen=True, slots=True)
class LiveJobs:
    """The unfinished jobs of one kind, queue and status. oldest_ready: how many seconds the job that has been due longest has
    waited for a worker; None if none is due."""

    kind: str
    queue: str
    status: Status
    count: int
    oldest_ready: float | None


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision, or an expiry. waited: seconds between the request and the decision."""

    approval_id: UUID
    status: ApprovalStatus
    via: str | None
    at: datetime
    waited: float


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures at one moment of database time (UTC). oldest_approval: seconds since the oldest open approval was requested."""

    at: datetime
    jobs: tuple[LiveJobs, ...]
    approvals_pending: int
    oldest_approval: float | None
