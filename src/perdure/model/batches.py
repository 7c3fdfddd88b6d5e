"""Batches: jobs that were enqueued together, and the job that starts when all of them have ended."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from perdure.model.states import FAILURES, Status

BATCH_KEY = "batch"
"""The key of the wait of a callback for the jobs of its batch."""
_SUBJECT = "batch "


@dataclass(frozen=True, slots=True)
class BatchJob:
    """A job of a batch."""

    id: UUID
    kind: str
    status: Status


@dataclass(frozen=True, slots=True)
class Batch:
    """The jobs of a batch, in the order in which they were enqueued. id: of the job that starts when all of them have ended."""

    id: UUID
    jobs: tuple[BatchJob, ...]

    @property
    def total(self) -> int:
        """How many jobs it has."""
        return len(self.jobs)

    @property
    def completed(self) -> int:
        """How many have completed."""
        return len(self._of(Status.COMPLETED))

    @property
    def failed(self) -> tuple[UUID, ...]:
        """Those that are FAILED or DEADLETTER."""
        return self._of(*FAILURES)

    @property
    def cancelled(self) -> tuple[UUID, ...]:
        """Those that were cancelled."""
        return self._of(Status.CANCELLED)

    @property
    def pending(self) -> int:
        """How many have not ended."""
        return sum(not job.status.terminal for job in self.jobs)

    def _of(self, *statuses: Status) -> tuple[UUID, ...]:
        return tuple(job.id for job in self.jobs if job.status in statuses)


def subject_of(batch_id: UUID) -> str:
    """The subject of the wait of a callback."""
    return f"{_SUBJECT}{batch_id}"


def batch_in(subject: object) -> UUID | None:
    """The batch that the subject of a wait names, if it is one."""
    if not isinstance(subject, str) or not subject.startswith(_SUBJECT):
        return None
    return UUID(subject.removeprefix(_SUBJECT))
