"""The rule by which an attempt that ends, or is lost, leaves its job: which status, how many retries are counted.

SQLite calls these functions; PostgreSQL says the same in one SQL statement for a whole batch.
`tests/conformance/test_settlement.py` holds both to this rule, case by case.
"""

from __future__ import annotations

from typing import NamedTuple

from perdure.model.jobs import MAX_LOST_STARTS, MAX_SUSPICION, SUSPECT_AT, Outcome
from perdure.model.states import FAILURES, Status


class Settlement(NamedTuple):
    """What a job becomes. The error goes into the run record; the job has it only in FAILED and DEADLETTER."""

    status: Status
    retry_count: int
    lost_starts: int
    suspicion: int
    error: str | None
    error_kind: str | None
    delay: float = 0.0
    """Seconds until a job that was lost is due again."""

    @property
    def job_error(self) -> tuple[str | None, str | None]:
        """error_message and error_kind of the job."""
        return (self.error, self.error_kind) if self.status in FAILURES else (None, None)


def used_up(retry_count: int, max_retries: int | None) -> bool:
    """Whether no retry is left. max_retries: None for a job that SQL by hand started, so that no claim has decided it yet."""
    return max_retries is not None and retry_count >= max_retries


def settle_outcome(
    outcome: Outcome,
    *,
    retry_count: int,
    max_retries: int | None,
    lost_starts: int,
    suspicion: int,
    cancel_requested: bool,
) -> Settlement:
    """How an attempt ends that its worker ends.

    A cancel request turns an outcome that is not terminal into CANCELLED. A RETRY that uses a retry counts it, or becomes
    DEADLETTER if they are used up. An attempt that was handed back says nothing about what the job does to its worker; any other
    end clears it of suspicion.
    """
    status, error, error_kind = outcome.status, outcome.error, outcome.error_kind
    if cancel_requested and not status.terminal:
        status = Status.CANCELLED
    if status is Status.RETRY and outcome.uses_retry:
        if used_up(retry_count, max_retries):
            status = Status.DEADLETTER
        else:
            retry_count += 1
    if status in FAILURES:
        error = error or outcome.reason or "failed"
        error_kind = error_kind or ("fatal" if status is Status.FAILED else "exhausted")
    cleared = outcome.started and (status is not Status.RETRY or outcome.uses_retry)
    return Settlement(
        status, retry_count, 0 if outcome.started else lost_starts, 0 if cleared else suspicion, error, error_kind
    )


class Loss(NamedTuple):
    """What was lost together with a started job: how many other started jobs of its worker, and whether one of them is at least
    as suspect. place: behind how many of them it comes, by id."""

    others: int
    as_suspect: bool
    place: int


def is_blamed(suspicion: int, loss: Loss) -> bool:
    """Whether a started job that was lost is taken for the one that ended its worker, and so uses a retry: if it was alone, or is
    the most suspect of those that run alone, or was spared often enough."""
    if suspicion >= MAX_SUSPICION:
        return True
    return not loss.as_suspect if suspicion >= SUSPECT_AT else loss.others == 0


def settle_lost(
    *,
    worker_id: str,
    started: bool,
    retry_count: int,
    max_retries: int | None,
    lost_starts: int,
    suspicion: int,
    loss: Loss,
    hung: bool,
    late: bool,
    cancel_requested: bool,
) -> Settlement:
    """How an attempt ends whose lease has expired, or whose worker did not stop after a cancel request.

    One that had started uses a retry if it is blamed; else it is one more time suspect, and due a little later than the others,
    so that they do not all meet again. One that had not started counts as a lost start, of which there may be a few. hung: it had
    started, and the end of its lease has passed: it ran into its timeout or, if it is late, into the job's deadline, which fails
    the job.
    """
    spared = started and not hung and not is_blamed(suspicion, loss)
    if cancel_requested:
        status = Status.CANCELLED
    elif spared:
        status = Status.RETRY
    elif hung and late:
        status = Status.FAILED
    elif used_up(retry_count, max_retries) if started else lost_starts + 1 >= MAX_LOST_STARTS:
        status = Status.DEADLETTER
    else:
        status = Status.RETRY
    retry_count += status is Status.RETRY and started and not spared
    suspicion += spared and status is Status.RETRY
    delay = 0.0
    if spared:
        delay = min(60.0, loss.place * 1.0) if suspicion >= SUSPECT_AT else min(5.0, loss.place * 0.1)
    error = None
    if hung and status is not Status.CANCELLED:
        passed = "the deadline passed" if status is Status.FAILED else "the attempt ran longer than its timeout"
        error = f"{passed}, and the handler did not stop"
    elif status is Status.DEADLETTER:
        error = f"the lease of worker {worker_id} ran out"
    kind = "timeout" if hung else "lease_lost"
    return Settlement(
        status, retry_count, lost_starts + (not started), suspicion, error, None if error is None else kind, delay
    )
