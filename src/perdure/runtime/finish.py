"""Writing how an attempt ended: repeated while the database does not answer and the lease lasts."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from math import inf
from typing import Any

import structlog

from perdure.model.effects import Effect
from perdure.model.errors import LeaseLost, PerdureError, StoreError
from perdure.model.jobs import Outcome
from perdure.model.states import Status
from perdure.runtime.lease import LeasedJob
from perdure.runtime.observer import Observer
from perdure.runtime.outcomes import clean
from perdure.store.group_commit.retry import Failure, Retries
from perdure.store.protocol import Store

log = structlog.get_logger("perdure.worker")


def write_end(
    store: Store, leased: LeasedJob, outcome: Outcome, observer: Observer | None
) -> Coroutine[Any, Any, Status | None]:
    """Commit the outcome while the lease lasts; return the status that was committed, None where none was.

    An outcome that the database refuses fails the job instead.
    """
    return _finish(store, leased, outcome) if observer is None else _finish_observed(store, leased, outcome, observer)


async def _finish_observed(store: Store, leased: LeasedJob, outcome: Outcome, observer: Observer) -> Status | None:
    await observer.attempt_ending(leased.claimed, outcome, store)
    status = None
    try:
        status = await _finish(store, leased, outcome)
    finally:
        observer.attempt_ended(leased.claimed, outcome, status)
    return status


async def _finish(store: Store, leased: LeasedJob, outcome: Outcome) -> Status | None:
    lease = leased.claimed.lease
    retries: Retries | None = None
    while True:
        try:
            effects = end_effects(leased) if outcome.status is Status.COMPLETED else ()
            status = await store.leases.finish(lease, outcome, effects=effects)
        except LeaseLost:
            log_lost_lease(leased)
            return None
        except StoreError as error:
            if leased.valid_until <= store.clock.monotonic():  # heartbeats may have moved it
                log.error(  # noqa: TRY400  the cause is in its message
                    "the end of a job could not be written in time; it runs again",
                    job_id=str(lease.job_id),
                    worker=lease.worker_id,
                    error=str(error),
                )
                return None
            retries = retries or Retries(inf, pauses=(0.1, 2.0))
            await retries.again(Failure.AWAY)
        except PerdureError as error:
            log.error(  # noqa: TRY400  as above
                "the database refuses the end of a job",
                job_id=str(lease.job_id),
                worker=lease.worker_id,
                error=str(error),
            )
            if outcome.error_kind == "refused":
                return None
            reason = clean(f"its end could not be written: {error}")
            outcome = Outcome(Status.FAILED, error=reason, error_kind="refused", started=outcome.started)
        else:
            if outcome.error is not None:
                _log_failure(leased, outcome, status)
            return status


def end_effects(leased: LeasedJob) -> Sequence[Effect]:
    """What commits together with the end of this attempt, if the job completes."""
    return () if leased.run is None or leased.run.of_agent is None else leased.run.of_agent.end_effects


def log_lost_lease(leased: LeasedJob) -> None:
    """Another worker may have the job: what this attempt came to is not written."""
    lease = leased.claimed.lease
    log.warning("the lease was lost before the end was written", job_id=str(lease.job_id), worker=lease.worker_id)


def _log_failure(leased: LeasedJob, outcome: Outcome, status: Status) -> None:
    lease = leased.claimed.lease
    about: dict[str, Any] = {
        "job_id": str(lease.job_id),
        "kind": leased.claimed.kind,
        "attempt": lease.attempt,
        "worker": lease.worker_id,
        "error": outcome.error,
    }
    if status is Status.RETRY:
        log.warning("the attempt failed; the job runs again", **about, delay=round(outcome.delay, 1))
    elif status in (Status.FAILED, Status.DEADLETTER):
        if leased.run is not None and leased.run.tracebacks is not None and leased.run.tracebacks.logged is not None:
            about["exception"] = leased.run.tracebacks.logged
        log.error("the job failed", **about, status=status.value)
