"""Exceptions by which a handler says how its attempt ends, and those that its context raises."""

from __future__ import annotations

from typing import Any

from perdure.model.approvals import Approval, ApprovalStatus, denied_text, expired_text
from perdure.model.errors.base import PerdureError
from perdure.model.timing import Duration, seconds


class Verdict(PerdureError):
    """Base class of the exceptions by which a handler says how its attempt ends, and of `Denied`."""

    code = "verdict"


class Retry(Verdict):
    """Raised by a handler: another attempt, after `after` (seconds or text) or after the policy's backoff. Uses a retry.

    kind: the job's error_kind if no retry is left.
    """

    code = "retry"
    kind: str | None = None

    def __init__(
        self, reason: str = "the handler asked for a retry", *, after: Duration | None = None, kind: str | None = None
    ) -> None:
        super().__init__(reason)
        self.kind = kind
        self.after = None if after is None else seconds(after)


class Fail(Verdict):
    """Raised by a handler: the job fails, without a retry. kind: its error_kind, a word for programs."""

    code = "fatal"
    kind = "fatal"

    def __init__(self, reason: str, *, kind: str = "fatal", hint: str | None = None) -> None:
        super().__init__(reason, hint=hint)
        self.kind = kind


class Snooze(Verdict):
    """Raised by a handler: run again after `delay` (seconds or text) without using a retry."""

    code = "snooze"

    def __init__(self, delay: Duration, reason: str = "snoozed") -> None:
        super().__init__(reason)
        self.delay = seconds(delay)


class Denied(Verdict):
    """Raised in a handler whose approval was denied (on_deny="resume") or expired (on_expiry="deny")."""

    code = "denied"

    def __init__(self, approval: Approval) -> None:
        expired = approval.status is ApprovalStatus.EXPIRED
        super().__init__(
            expired_text(approval.key) if expired else denied_text(approval.key, approval.decided_by, approval.comment)
        )
        self.approval = approval
        self.by: str | None = approval.decided_by
        self.reason: str | None = approval.comment


class SignalTimeout(Verdict, TimeoutError):
    """Raised in a handler: no signal of this key came in time. Not caught, it fails the job (`timeout`)."""

    code = "signal-timeout"

    def __init__(self, key: str) -> None:
        super().__init__(f"no signal '{key}' came in time")
        self.key = key


class BudgetExceeded(Verdict):
    """Raised in a handler: its budget is used up, and more was not given. Not caught, it fails the job (`budget`).

    thing: what is used up: tokens, cost, tool_calls, wall_time or children.
    """

    code = "budget-exceeded"

    def __init__(self, message: str, *, thing: str) -> None:
        super().__init__(message)
        self.thing = thing


class ToolNotAllowed(Verdict):
    """Raised in a handler: its approval context, or a rule, does not allow this call of a tool. Not caught, it fails the job
    (`denied`)."""

    code = "tool-not-allowed"


class Suspended(BaseException):
    """Raised by every call on a context whose attempt has ended: parked, cancelled, handed back, or its lease lost."""

    def __init__(self, reason: Any = None) -> None:
        super().__init__(f"this attempt has ended ({reason}); what it still does is not recorded")
        self.reason = reason
