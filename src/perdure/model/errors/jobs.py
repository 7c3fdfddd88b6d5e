"""Errors of jobs: not found, in the wrong state, held by a worker, pruned."""

from __future__ import annotations

from uuid import UUID

from perdure.model.errors.base import Conflict, NotFound
from perdure.model.ids import short_id
from perdure.model.jobs import Job


class JobNotFound(NotFound):
    """No job has this id."""

    code = "job-not-found"


class IllegalTransition(Conflict):
    """The state machine has no such transition."""

    code = "illegal-transition"


class VersionMismatch(Conflict):
    """The log has new events since it was read: `actual` is its last version, `expected` the one the caller gave."""

    code = "version-mismatch"

    def __init__(self, message: str, *, expected: int, actual: int) -> None:
        super().__init__(message, hint="read the events after your version, then append again")
        self.expected = expected
        self.actual = actual


class JobLeased(Conflict):
    """A worker holds the job; only it may append to the log."""

    code = "job-leased"


class JobPruned(Conflict):
    """The job's payload and result were pruned; only its log was kept."""

    code = "job-pruned"

    def __init__(self, job: Job, remedy: str = "") -> None:
        super().__init__(
            f"the payload and the result of job …{job.short_id} {job.kind} were pruned at {job.pruned_at:%Y-%m-%d %H:%M} UTC",
            hint=f"{remedy}perdure jobs events {job.short_id} shows the log, which was kept",
        )
        self.job = job


class IdempotencyConflict(Conflict):
    """The idempotency key was used before with another payload."""

    code = "idempotency-conflict"


class UniqueConflict(Conflict):
    """Another job has the unique key; it was enqueued with on_conflict="refuse". `job_id` is that job."""

    code = "unique-conflict"

    def __init__(self, message: str, job_id: UUID) -> None:
        super().__init__(message, hint=f"perdure jobs get {short_id(job_id)} shows the job that has it")
        self.job_id = job_id
