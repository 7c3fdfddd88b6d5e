"""Queues as operators see them: what waits there, and their pauses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from perdure.model.states import Status


@dataclass(frozen=True, slots=True)
class QueuePause:
    """One pause of a queue; it holds while `resumed_at` is None. Times are UTC.

    paused_by, paused_via, reason: who paused it, via what, and why. resumed_by, resumed_via, resumed_reason: the same of its end.
    """

    id: UUID
    queue: str
    paused_at: datetime
    paused_by: str
    paused_via: str | None = None
    reason: str | None = None
    resumed_at: datetime | None = None
    resumed_by: str | None = None
    resumed_via: str | None = None
    resumed_reason: str | None = None


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue in which jobs are that have not ended, or one that is paused.

    counts: its jobs that have not ended, by status. oldest_ready: how many seconds the job that has been due longest has waited
    for a worker; None if none is due. pause: the pause that holds now.
    """

    name: str
    counts: Mapping[Status, int] = field(default_factory=dict)
    oldest_ready: float | None = None
    pause: QueuePause | None = None

    @property
    def paused(self) -> bool:
        """Whether no claim takes its jobs."""
        return self.pause is not None
