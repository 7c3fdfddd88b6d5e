"""The payloads of an approval's events, the same in both dialects. They never hold a token."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from perdure.model.approvals import Decide, NewApproval


def request_note(new: NewApproval, expires_at: datetime | None) -> dict[str, Any]:
    """The payload of an `approval_requested` event. fsck reads the key and the approval's id, which come first."""
    note: dict[str, Any] = {
        "key": new.key,
        "approval": str(new.id),
        "kind": new.kind,
        "title": new.title,
        "payload_digest": new.payload_digest,
        "requester": new.requester,
    }
    if new.assignees:
        note["assignees"] = list(new.assignees)
    if expires_at is not None:
        note["expires_at"] = expires_at.isoformat()
    return note


def decision_note(decision: Decide, approval_id: UUID, key: str) -> dict[str, Any]:
    """The payload of an `approval_decided` event, and the note of a job that the decision fails."""
    note: dict[str, Any] = {
        "approval": str(approval_id),
        "key": key,
        "decision": "APPROVED" if decision.verdict == "approve" else "DENIED",
        "actor": decision.by,
        "via": decision.via,
    }
    if decision.comment:
        note["reason"] = decision.comment
    if decision.edited_payload is not None:
        note["edited"] = True
    return note
