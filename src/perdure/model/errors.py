"""Every error perdure raises, each a class with a stable `code` and a message that says what happened, why, and what to do.

PerdureError
├── ConfigError                  malformed-setting
│   ├── MalformedUrl             malformed-url
│   ├── ExtraMissing             extra-missing
│   └── PortTaken                port-taken
├── StoreError
│   ├── StoreUnreachable         store-unreachable
│   ├── SchemaMissing            schema-missing
│   │   └── ForeignDatabase      foreign-database
│   ├── SchemaOutdated           schema-outdated
│   ├── SchemaTooNew             schema-too-new
│   └── MigrationChanged         migration-changed
├── InvalidInput (ValueError)    invalid-input
│   ├── NotJson                  not-json
│   ├── TooLarge                 too-large
│   ├── InvalidPriority          invalid-priority
│   ├── NegativeDelay            negative-delay
│   ├── UnsupportedTransaction   unsupported-transaction
│   ├── NoTransaction            no-transaction
│   └── OtherDatabase            other-database
├── NotFound (LookupError)
│   ├── JobNotFound              job-not-found
│   ├── ApprovalNotFound         approval-not-found
│   ├── WorkerNotFound           worker-not-found
│   ├── StepNotFound             step-not-found
│   └── AmbiguousId              ambiguous-id
├── Conflict
│   ├── IllegalTransition        illegal-transition
│   ├── VersionMismatch          version-mismatch
│   ├── JobLeased                job-leased
│   ├── JobPruned                job-pruned
│   ├── IdempotencyConflict      idempotency-conflict
│   ├── AlreadyDecided           already-decided
│   ├── ApprovalExpired          approval-expired
│   ├── ApprovalChanged          approval-changed
│   └── RealJobs                 real-jobs
├── NotPermitted
│   ├── WrongToken               wrong-token
│   └── NotAssigned              not-assigned
├── HandlerError
│   ├── UnknownHandler           unknown-handler
│   ├── DuplicateHandler         duplicate-handler
│   ├── StepChanged              step-changed
│   ├── UnknownOutcome           unknown-outcome
│   ├── NotifyFailed             notify-failed
│   └── LeaseLost                lease-lost
├── JobError                     raised by result()
│   ├── JobFailed                job-failed
│   ├── JobCancelled             job-cancelled
│   └── WaitTimeout              wait-timeout
└── Verdict                      raised by or inside handlers
    ├── Retry  Fail  Snooze
    └── Denied                   denied

Suspended is a BaseException on its own: user code that catches Exception must not swallow it.
"""

from __future__ import annotations

from typing import Any, ClassVar

from perdure.model.approvals import Approval, ApprovalStatus, denied_text, expired_text
from perdure.model.jobs import Job
from perdure.model.timing import Duration, seconds


class PerdureError(Exception):
    """Root of all errors. `code` is stable; `hint` says what to do next, where there is something to do."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = str(message)  # `raise Fail(error)` gives an exception
        self.hint = hint
        page = f"[perdure help {self.code}]"
        self.add_note(f"{hint}  {page}" if hint else page)


class ConfigError(PerdureError):
    """A setting is missing, unknown or makes no sense."""

    code = "malformed-setting"


class MalformedUrl(ConfigError):
    """A database URL is not one of memory:, sqlite:///path, postgresql://..."""

    code = "malformed-url"


class ExtraMissing(ConfigError):
    """What was asked for needs a package that is not installed; the message names the extra that brings it."""

    code = "extra-missing"


class PortTaken(ConfigError):
    """The address for metrics cannot be used: another process has the port, or it is reserved."""

    code = "port-taken"


class StoreError(PerdureError):
    """The database cannot serve as perdure's store."""

    code = "store-error"


class StoreUnreachable(StoreError):
    """The database does not answer; trying again later may help."""

    code = "store-unreachable"


class SchemaMissing(StoreError):
    """The database has no perdure schema yet."""

    code = "schema-missing"


class ForeignDatabase(SchemaMissing):
    """The database has tables, and they are not perdure's; it was not touched."""

    code = "foreign-database"


class SchemaOutdated(StoreError):
    """The database's schema is older than this version of perdure needs."""

    code = "schema-outdated"


class SchemaTooNew(StoreError):
    """The database's schema is newer than this version of perdure knows: an old worker must not touch it."""

    code = "schema-too-new"


class MigrationChanged(StoreError):
    """A migration that was applied differs from the one shipped: its checksum does not match."""

    code = "migration-changed"


class InvalidInput(PerdureError, ValueError):
    """An argument makes no sense; nothing was written."""

    code = "invalid-input"


class NotJson(InvalidInput):
    """A payload, result, checkpoint or event cannot be written as JSON."""

    code = "not-json"


class TooLarge(InvalidInput):
    """A payload, result, checkpoint or event is over 1 MiB of JSON."""

    code = "too-large"


class InvalidPriority(InvalidInput):
    """A priority is a whole number from 1 to 9; 9 is the most urgent."""

    code = "invalid-priority"


class NegativeDelay(InvalidInput):
    """A delay cannot be negative."""

    code = "negative-delay"


class UnsupportedTransaction(InvalidInput):
    """What was given as tx= is nothing whose transaction perdure can join."""

    code = "unsupported-transaction"


class NoTransaction(InvalidInput):
    """The connection given as tx= has no open transaction: the job would be committed at once."""

    code = "no-transaction"


class OtherDatabase(InvalidInput):
    """The connection given as tx= leads to another database than the App's."""

    code = "other-database"


class NotFound(PerdureError, LookupError):
    """Nothing has this id."""

    code = "not-found"


class JobNotFound(NotFound):
    """No job has this id."""

    code = "job-not-found"


class ApprovalNotFound(NotFound):
    """No approval has this id, or the job named has asked nothing so far."""

    code = "approval-not-found"


class WorkerNotFound(NotFound):
    """No worker has this id."""

    code = "worker-not-found"


class StepNotFound(NotFound):
    """The job has recorded no step of this name or number."""

    code = "step-not-found"


class AmbiguousId(NotFound):
    """Several ids end in these digits, fewer than 6 digits were given, or the job named asks several things."""

    code = "ambiguous-id"


class Conflict(PerdureError):
    """The request does not fit the state the database is in."""

    code = "conflict"


class IllegalTransition(Conflict):
    """The state machine has no such transition."""

    code = "illegal-transition"


class VersionMismatch(Conflict):
    """The log has moved on: `actual` is its head, `expected` what the caller believed."""

    code = "version-mismatch"

    def __init__(self, message: str, *, expected: int, actual: int) -> None:
        super().__init__(message, hint="read the events after your version and try again")
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


class AlreadyDecided(Conflict):
    """The approval was decided before: the first decision stands."""

    code = "already-decided"


class ApprovalExpired(Conflict):
    """The approval ran out before the decision."""

    code = "approval-expired"


class ApprovalChanged(Conflict):
    """The payload is not the one that was looked at: its digest differs."""

    code = "approval-changed"


class RealJobs(Conflict):
    """The database holds jobs that chaos did not make, or tables that are not perdure's; it was left as it is."""

    code = "real-jobs"


class NotPermitted(PerdureError):
    """The caller may not do this."""

    code = "not-permitted"


class WrongToken(NotPermitted):
    """No approval has this token."""

    code = "wrong-token"


class NotAssigned(NotPermitted):
    """The approval names who may decide, and the caller is not among them."""

    code = "not-assigned"


class HandlerError(PerdureError):
    """A handler, its registration or its steps are at fault."""

    code = "handler-error"


class UnknownHandler(HandlerError):
    """No handler of this name is registered."""

    code = "unknown-handler"


class DuplicateHandler(HandlerError):
    """Two handlers were registered under one name."""

    code = "duplicate-handler"


class StepChanged(HandlerError):
    """A recorded step was called with other arguments than when it was recorded."""

    code = "step-changed"


class UnknownOutcome(HandlerError):
    """A side effect was cut off, whether it happened is open, and the policy is to fail."""

    code = "unknown-outcome"


class NotifyFailed(HandlerError):
    """The function that was to pass on an approval's link raised; it is called again with a fresh token when the job retries."""

    code = "notify-failed"


class LeaseLost(HandlerError):
    """The job is no longer this worker's: it was taken over, cancelled or changed by hand. Nothing was written."""

    code = "lease-lost"


class JobError(PerdureError):
    """result() cannot return a result."""

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


class WaitTimeout(JobError, TimeoutError):
    """The job had not finished in time; it is kept, not cancelled."""

    code = "wait-timeout"


class Verdict(PerdureError):
    """What a handler raises to say how its attempt ends, or what the runtime tells a handler."""

    code = "verdict"


class Retry(Verdict):
    """Raised by a handler: try again, after `after` (seconds or text) or after the policy's backoff. Uses a retry."""

    code = "retry"

    def __init__(self, reason: str = "the handler asked for a retry", *, after: Duration | None = None) -> None:
        super().__init__(reason)
        self.after = None if after is None else seconds(after)


class Fail(Verdict):
    """Raised by a handler: fail for good, no retry."""

    code = "fatal"


class Snooze(Verdict):
    """Raised by a handler: run again after `delay` (seconds or text) without using a retry."""

    code = "snooze"

    def __init__(self, delay: Duration, reason: str = "snoozed") -> None:
        super().__init__(reason)
        self.delay = seconds(delay)


class Denied(Verdict):
    """Raised inside a handler whose approval was denied (on_deny="resume") or ran out (on_expiry="deny")."""

    code = "denied"

    def __init__(self, approval: Approval) -> None:
        expired = approval.status is ApprovalStatus.EXPIRED
        super().__init__(
            expired_text(approval.key) if expired else denied_text(approval.key, approval.decided_by, approval.comment)
        )
        self.approval = approval
        self.by: str | None = approval.decided_by
        self.reason: str | None = approval.comment


class Suspended(BaseException):
    """Raised by every call on a context whose attempt is over: parked, cancelled, handed back, or its lease lost."""

    def __init__(self, reason: Any = None) -> None:
        super().__init__(f"this attempt is over ({reason}); nothing it still does is recorded")
        self.reason = reason
