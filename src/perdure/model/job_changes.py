"""What people and programs change about jobs, one or many at a time, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple, TypeAlias
from uuid import UUID

from perdure.model.errors import PerdureError
from perdure.model.events import NewEvent
from perdure.model.jobs import Job
from perdure.model.states import CLAIMABLE, FAILURES, TERMINAL, Status

EDITABLE = tuple(status for status in Status if status in CLAIMABLE)
"""The states in which the priority of a job can be edited."""
LIVE = tuple(status for status in Status if status not in TERMINAL)
ENDED = tuple(status for status in Status if status in TERMINAL)
FAILED = tuple(status for status in Status if status in FAILURES)
NO_EVENTS: Mapping[UUID, Sequence[NewEvent]] = MappingProxyType({})
SAMPLE = 5
"""How many jobs a dry run shows."""


class Cancelling(NamedTuple):
    """The job is cancelled; see `JobStore.cancel`."""

    force: bool = False


class MakingDue(NamedTuple):
    """The job is made due now; see `JobStore.retry_now`."""


class Editing(NamedTuple):
    """What of a job gets another value; None: it stays. delay: seconds from database time, counts only without run_at."""

    priority: int | None = None
    run_at: datetime | None = None
    delay: float | None = None
    payload: str | None = None  # JSON text

    @property
    def timed(self) -> bool:
        """Whether it is to start at another time."""
        return self.run_at is not None or self.delay is not None


JobChange: TypeAlias = Cancelling | MakingDue | Editing


class Changed(NamedTuple):
    """What became of a change of one job. done: whether it wrote anything. error: why it is not possible."""

    id: UUID
    done: bool
    error: PerdureError | None = None


@dataclass(frozen=True, slots=True)
class BulkResult:
    """What was done to all jobs that match, or in a dry run would be.

    counts: how many jobs matched, by their status before. done: how many were changed; 0 in a dry run. skipped: how many were
    left as they were: another process had changed them, or there was nothing to do. sample: of a dry run the newest jobs, at
    most SAMPLE.
    """

    counts: Mapping[Status, int] = field(default_factory=dict)
    done: int = 0
    skipped: int = 0
    sample: tuple[Job, ...] = ()
    dry_run: bool = False

    @property
    def matched(self) -> int:
        """How many jobs matched."""
        return sum(self.counts.values())
