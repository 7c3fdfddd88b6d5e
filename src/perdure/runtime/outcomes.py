"""Turns what a handler raised into the outcome of its attempt."""

from __future__ import annotations

import traceback

from perdure.model.errors import (
    BudgetExceeded,
    ChildError,
    Denied,
    Fail,
    InvalidInput,
    ReplyTimeout,
    Retry,
    SessionChanged,
    SignalTimeout,
    Snooze,
    StepChanged,
    StoreError,
    ToolNotAllowed,
    UnknownOutcome,
    WaitInsideJob,
)
from perdure.model.jobs import Outcome
from perdure.model.states import Status
from perdure.model.timing import Backoff
from perdure.runtime.registry import Policy, retry_after
from perdure.runtime.tracebacks import INTERNAL_FILES, storable

MAX_ERROR_CHARS = 4000
MOST_CONFLICTS = 100
"""So many saves of the session that a job loses in a row use a retry only from the last one on."""
_AFTER_CONFLICT = Backoff(base=0.1, cap=5)


class AttemptTimeout(Exception):
    """The attempt ran longer than its handler's timeout, or past the job's deadline."""

    def __init__(self, message: str, *, final: bool) -> None:
        super().__init__(message)
        self.final = final


def outcome_of(error: BaseException, policy: Policy, retry_count: int) -> Outcome:
    """Classify what a handler raised.

    Fail, Denied, changed steps, unknown outcomes and results that are no JSON fail the job. Snooze uses no retry, nor
    does a save of the session that another job was before, up to MOST_CONFLICTS in a row. Retry and errors that the policy
    retries use one, after the error's Retry-After or the policy's backoff.
    """
    match error:
        case BaseExceptionGroup():
            # parallel branches: an error that fails the job has precedence over one that may be retried
            ends = [outcome_of(e, policy, retry_count) for e in error.exceptions]
            return next((e for e in ends if e.status is Status.FAILED), ends[0])
        case StoreError():  # the database did not answer, which is not the job's fault: no retry is used
            delay = policy.backoff.delay(retry_count)
            return Outcome(Status.RETRY, error=describe(error), delay=delay, reason="store_unreachable")
        case SessionChanged() if error.conflicts is not None and error.conflicts < MOST_CONFLICTS:
            # another job was quicker, and with this one on its own the same code would have gone through
            delay = _AFTER_CONFLICT.delay(error.conflicts - 1)
            return Outcome(Status.RETRY, error=describe(error), delay=delay, reason="session_changed")
        case Snooze():
            return Outcome(Status.RETRY, delay=error.delay, reason=clean(error.message))
        case Fail():
            return _failed(error.message, error.kind)
        case Denied() | ToolNotAllowed():
            return _failed(error.message, "denied")
        case SignalTimeout() | ReplyTimeout():
            return _failed(error.message, "timeout")
        case BudgetExceeded():
            return _failed(error.message, "budget")
        case ChildError():
            return _failed(error.message, "child")
        case UnknownOutcome():
            return _failed(error.message, "unknown_outcome")
        case StepChanged() | InvalidInput() | WaitInsideJob():
            return _failed(describe(error), "fatal")
        case AttemptTimeout() if error.final:
            return _failed(str(error), "timeout")
        case AttemptTimeout():
            return _retry(str(error), policy.backoff.delay(retry_count), "timeout")
        case Retry():
            delay = policy.backoff.delay(retry_count) if error.after is None else error.after
            return _retry(error.message, delay, error.kind)
        case _ if policy.retries(error):
            after = retry_after(error)
            delay = policy.backoff.delay(retry_count) if after is None else after
            return _retry(describe(error), delay, None)
        case _:
            return _failed(describe(error), "fatal")


def input_refused(error: InvalidInput) -> Outcome:
    """The payload does not fit the handler's input type: a retry would not change that."""
    return _failed(clean(str(error)), "fatal")


def outcome_of_exit(error: BaseException, policy: Policy, retry_count: int) -> Outcome:
    """The handler raised something that is no Exception: its own cancellation, `sys.exit`, KeyboardInterrupt."""
    return _retry(f"the handler ended by {_text(error)}", policy.backoff.delay(retry_count), None)


def blocked_too_long(seconds: float, policy: Policy, retry_count: int) -> Outcome:
    """Its code blocked the event loop until the process ended."""
    error = f"its code blocked the event loop of its worker for {seconds:g} s, so that process ended"
    return _retry(error, policy.backoff.delay(retry_count), "timeout")


def hand_back(reason: str, *, started: bool = True) -> Outcome:
    """Back to the queue without using a retry."""
    return Outcome(Status.RETRY, uses_retry=False, reason=reason, started=started)


def describe(error: BaseException) -> str:
    """`ValueError: empty source list (at agents.py:42 in search)`: without NUL, at most 4000 characters. The place is the last
    line outside of perdure that was reached; for a function without Python code it is the line that called it."""
    text = _text(error)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(INTERNAL_FILES)]
    if frames:
        last = frames[-1]
        text += f" (at {last.filename.rsplit('/', 1)[-1]}:{last.lineno} in {last.name})"
    return clean(text)


def clean(text: str) -> str:
    """Text that every database can hold: no NUL, no lone surrogates, at most 4000 characters."""
    return storable(text)[:MAX_ERROR_CHARS]


def _text(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  the user's own __str__
        text = "(its __str__ failed)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _failed(error: str, kind: str) -> Outcome:
    return Outcome(Status.FAILED, error=clean(error), error_kind=kind)


def _retry(error: str, delay: float, kind: str | None) -> Outcome:
    return Outcome(Status.RETRY, error=clean(error), error_kind=kind, delay=delay, uses_retry=True, reason="failed")
