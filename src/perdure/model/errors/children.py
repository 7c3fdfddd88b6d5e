"""Errors of children: jobs that a job has spawned."""

from __future__ import annotations

from uuid import UUID

from perdure.model.errors.base import InvalidInput
from perdure.model.errors.verdicts import Verdict
from perdure.model.ids import short_id


class ChildError(Verdict):
    """Base class of what a parent gets for a child that ended without a result.

    child_id, kind: of the child. error, error_kind: why it failed, None where it was cancelled. A parent that does not catch it
    fails, without a retry: the child stays as it ended.
    """

    code = "child-error"

    def __init__(self, child_id: UUID, kind: str, how: str, error: str | None, error_kind: str | None) -> None:
        because = f": {error}" if error else ""
        super().__init__(
            f"child …{short_id(child_id)} {kind} {how}{because}", hint=f"perdure jobs get {short_id(child_id)}"
        )
        self.child_id = child_id
        self.kind = kind
        self.error = error
        self.error_kind = error_kind


class ChildFailed(ChildError):
    """Raised by `wait_for` and `gather` for a child that is FAILED or DEADLETTER."""

    code = "child-failed"


class ChildCancelled(ChildError):
    """Raised by `wait_for` and `gather` for a child that was cancelled."""

    code = "child-cancelled"


class WaitCircle(InvalidInput):
    """A job would wait for itself, for a job that it descends from, or for one that waits for it. Wait in one direction only."""

    code = "wait-circle"
