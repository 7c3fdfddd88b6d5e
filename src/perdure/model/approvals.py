"""Approvals: a question to a person, asked once and decided once. Of its token only the hash is stored."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal
from uuid import UUID

from perdure.model.approval_rules import NewRule
from perdure.model.ids import short_id

OnExpiry = Literal["fail", "deny", "continue"]
"""What happens if an approval expires: the job fails, it counts as denied, or the handler continues."""
OnDeny = Literal["fail", "resume"]
"""What a denial does: the job fails, or the handler gets `Denied`."""


class ApprovalStatus(StrEnum):
    """PENDING until decided, expired, or closed because its job ended (CANCELLED)."""

    PENDING = "PENDING"
    APPROVED = "APPROVED"
    DENIED = "DENIED"
    EXPIRED = "EXPIRED"
    CANCELLED = "CANCELLED"


@dataclass(frozen=True, slots=True)
class NewApproval:
    """An approval to be requested. `expires_in` is seconds from database time; None never expires.

    kind: `approval`, or `question` for a side effect whose outcome a crash made unknown.
    """

    id: UUID
    key: str
    title: str
    payload: str  # JSON text
    payload_digest: str
    requester: str
    kind: str = "approval"
    assignees: tuple[str, ...] = ()
    expires_in: float | None = None
    on_expiry: OnExpiry = "fail"
    on_deny: OnDeny = "fail"
    token_hash: str | None = None


@dataclass(frozen=True, slots=True)
class Approval:
    """An approval, with the decision, if there is one.

    key: its name in the job. kind: "approval", or "question" about a tool whose outcome is unknown. payload: what was asked for,
    as plain JSON values. payload_digest: changes when the payload does. requester: the kind and short id of the job.
    assignees: who may decide by id; empty: any name. on_expiry: what happens if it expires.
    on_deny: what a denial does. decided_by: the name that was given with the decision. edited: whether the payload was changed.
    decision_payload: the changed payload, if it was.
    """

    id: UUID
    tenant_id: str
    job_id: UUID
    key: str
    kind: str
    title: str
    payload: Any
    payload_digest: str
    requester: str
    assignees: tuple[str, ...]
    status: ApprovalStatus
    on_expiry: OnExpiry
    on_deny: OnDeny
    requested_at: datetime
    expires_at: datetime | None
    decided_at: datetime | None = None
    decided_by: str | None = None
    decided_via: str | None = None
    comment: str | None = None
    edited: bool = False
    decision_payload: Any = None
    job_kind: str | None = None
    job_status: str | None = None

    @property
    def short_id(self) -> str:
        """The last 8 hex digits of the id."""
        return short_id(self.id)

    @property
    def pending(self) -> bool:
        """True while it can still be decided."""
        return self.status is ApprovalStatus.PENDING

    @property
    def final_payload(self) -> Any:
        """What was approved: the edited payload where the decider changed it, else the one asked for."""
        return self.decision_payload if self.edited else self.payload


@dataclass(frozen=True, slots=True)
class Decide:
    """A decision to be recorded. Its approval is named by `approval_id` (an operator) or by `token_hash` (the link)."""

    verdict: Literal["approve", "deny"]
    by: str
    via: str
    approval_id: UUID | None = None
    token_hash: str | None = None
    comment: str | None = None
    edited_payload: str | None = None  # JSON text
    expected_digest: str | None = None
    rule: NewRule | None = None
    """Stored together with the decision."""


_IDS = ("id", "job_id")
_TIMES = ("requested_at", "expires_at", "decided_at")


def as_record(approval: Approval) -> dict[str, Any]:
    """A decided approval as JSON values, for a log that is read without the approval's row; `from_record` reads it back."""
    record: dict[str, Any] = {f.name: getattr(approval, f.name) for f in fields(Approval)}
    del record["job_kind"], record["job_status"]
    record |= {name: str(record[name]) for name in _IDS}
    record |= {name: record[name].isoformat() for name in _TIMES if record[name] is not None}
    return {**record, "assignees": list(approval.assignees)}


def from_record(record: dict[str, Any]) -> Approval:
    """The approval of what `as_record` returned."""
    return Approval(
        **{
            **record,
            **{name: UUID(record[name]) for name in _IDS},
            **{name: datetime.fromisoformat(record[name]) for name in _TIMES if record[name] is not None},
            "assignees": tuple(record["assignees"]),
            "status": ApprovalStatus(record["status"]),
        }
    )


def denied_text(key: str, by: str | None, comment: str | None) -> str:
    """The error message of a job that failed because of a denial."""
    return f"approval '{key}' was denied" + (f" by {by}" if by else "") + (f": {comment}" if comment else "")


def expired_text(key: str) -> str:
    """The error message of a job that failed because its approval expired."""
    return f"approval '{key}' expired undecided"
