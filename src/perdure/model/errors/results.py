"""Errors of result(), for a job that has no result."""

from __future__ import annotations

from perdure.model.errors.base import PerdureError
from perdure.model.jobs import Job


class JobError(PerdureError):
    """The job has no result that result() can return."""

    code = "job-error"


class JobFailed(JobError):
    """The job ended FAILED or DEADLETTER; `job` is its record, `kind` its error_kind."""

    code = "job-failed"

    def __init__(self, job: Job) -> None:
        super().__init__(f"job …{job.short_id} {job.kind} is {job.status}: {job.error_message}")
        self.job = job
        self.kind = job.error_kind


class JobCancelled(JobError):
    """The job was cancelled; `job` is its record."""

    code = "job-cancelled"

    def __init__(self, job: Job) -> None:
        reason = job.note.get("reason")
        super().__init__(f"job …{job.short_id} {job.kind} was cancelled" + (f": {reason}" if reason else ""))
        self.job = job


class WaitInsideJob(JobError):
    """A handler waits without a limit for the end of another job: it keeps its slot, and if all slots wait like this, the other
    job never starts."""

    code = "wait-inside-job"


class WaitTimeout(JobError, TimeoutError):
    """The job did not finish in time; it is not cancelled."""

    code = "wait-timeout"
