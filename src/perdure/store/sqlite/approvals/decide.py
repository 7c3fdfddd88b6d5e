"""Deciding an approval once, or letting it expire, and what becomes of the job that waits for it."""

from __future__ import annotations

import json
import sqlite3
from typing import Any
from uuid import UUID

from perdure.model.approvals import Approval, ApprovalStatus, Decide, denied_text, expired_text
from perdure.model.states import Status
from perdure.store.approval_notes import decision_note
from perdure.store.errors import approval_not_found, check_decision, wrong_token
from perdure.store.sqlite.approvals.read import get_approval
from perdure.store.sqlite.approvals.rules import insert_rule
from perdure.store.sqlite.engine.codec import CODEC
from perdure.store.sqlite.engine.locked_job import LockedJob
from perdure.store.sqlite.engine.statements import SQL

_SUSPENDED = (Status.PARKED, Status.WAITING_FOR_APPROVAL)


def lock_approval(conn: sqlite3.Connection, now: int, approval_id: UUID | str, tenant_id: str) -> sqlite3.Row:
    """The row of an approval, and whether it has `expired`. Raises ApprovalNotFound."""
    values = {"approval_id": str(approval_id), "now": now, "tenant_id": tenant_id}
    row: sqlite3.Row | None = conn.execute(SQL["lock_approval"], values).fetchone()
    if row is None:
        raise approval_not_found(approval_id)
    return row


def decide(conn: sqlite3.Connection, now: int, tenant_id: str, decision: Decide) -> Approval:
    """See `protocol.ApprovalStore.decide`."""
    approval_id: UUID | str | None = decision.approval_id
    if decision.token_hash is not None:
        named = conn.execute(
            SQL["approval_of_token"], {"token_hash": decision.token_hash, "tenant_id": tenant_id}
        ).fetchone()
        if named is None or (approval_id is not None and str(approval_id) != named["id"]):
            raise wrong_token()
        approval_id = named["id"]
    row = lock_approval(conn, now, str(approval_id), tenant_id)
    id = UUID(row["id"])
    check_decision(
        decision,
        approval_id=id,
        kind=row["kind"],
        status=row["status"],
        decided_by=row["decided_by"],
        expired=bool(row["expired"]),
        expires_at=None if row["expires_at"] is None else CODEC.time(row["expires_at"]),
        payload_digest=row["payload_digest"],
        assignees=CODEC.texts(row["assignees"]),
    )
    denied = decision.verdict == "deny"
    values = {
        "status": ApprovalStatus.DENIED if denied else ApprovalStatus.APPROVED,
        "by": decision.by,
        "via": decision.via,
        "comment": decision.comment,
        "edited": decision.edited_payload,
    }
    failure = (denied_text(row["key"], decision.by, decision.comment), "denied")
    must_fail = denied and row["on_deny"] == "fail"
    note = decision_note(decision, id, row["key"])
    _settle(conn, now, row, tenant_id, values, note, failure if must_fail else None)
    if decision.rule is not None:
        insert_rule(conn, now, tenant_id, decision.rule)
    return get_approval(conn, id, tenant_id)


def expire_approval(conn: sqlite3.Connection, now: int, approval: sqlite3.Row, tenant_id: str) -> None:
    """Settle an approval whose time has run out."""
    note = {"approval": approval["id"], "key": approval["key"], "decision": "EXPIRED", "via": "system"}
    values = {"status": ApprovalStatus.EXPIRED, "by": None, "via": "system", "comment": None, "edited": None}
    failure = (expired_text(approval["key"]), "expired") if approval["on_expiry"] == "fail" else None
    _settle(conn, now, approval, tenant_id, values, note, failure)


def _settle(
    conn: sqlite3.Connection,
    now: int,
    approval: sqlite3.Row,
    tenant_id: str,
    values: dict[str, Any],
    note: dict[str, Any],
    failure: tuple[str, str] | None,
) -> None:
    """Decide an approval, write it to the log, and fail the job that is suspended on it if `failure` says so."""
    id: str = approval["id"]
    job = LockedJob(conn, approval["job_id"], tenant_id)
    if not job.status.terminal:
        job.write_event(conn, now, "approval_decided", json.dumps(note, ensure_ascii=False))
    conn.execute(SQL["settle_approval"], {**values, "approval_id": id, "now": now})
    suspended = job.status in _SUSPENDED and job.claim is None
    waits = {"job_id": job.id, "approval_id": id}
    if failure and suspended and conn.execute(SQL["waits_on"], waits).fetchone():
        error, kind = failure
        said = json.dumps(note | {"error": error, "error_kind": kind}, ensure_ascii=False)
        failed = {"job_id": job.id, "now": now, "error": error, "error_kind": kind, "note": said}
        conn.execute(SQL["fail_suspended"], failed)
