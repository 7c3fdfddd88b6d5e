"""Asking for an approval, and giving it another token."""

from __future__ import annotations

import json
import sqlite3
from uuid import UUID

from perdure.model.approvals import Approval, NewApproval
from perdure.model.effects import open_wait
from perdure.model.jobs import Lease, Wait
from perdure.store.approval_notes import request_note
from perdure.store.errors import check_pending, lease_lost
from perdure.store.sqlite.approvals.decide import lock_approval
from perdure.store.sqlite.approvals.read import get_approval
from perdure.store.sqlite.engine.codec import CODEC, span
from perdure.store.sqlite.engine.locked_job import LockedJob
from perdure.store.sqlite.engine.statements import SQL
from perdure.store.sqlite.leases.lease_check import held_claim


def request_approval(
    conn: sqlite3.Connection, now: int, tenant_id: str, lease: Lease, approval: NewApproval
) -> Approval:
    """See `protocol.ApprovalStore.request_approval`."""
    job_id = str(lease.job_id)
    if held_claim(conn, now, tenant_id, lease) is None:
        raise lease_lost(lease)
    existing = conn.execute(
        SQL["approval_of_key"], {"job_id": job_id, "kind": approval.kind, "key": approval.key}
    ).fetchone()
    if existing is not None:
        return get_approval(conn, existing["id"], tenant_id)
    id = str(approval.id)
    expires = None if approval.expires_in is None else now + span(approval.expires_in)
    row = {
        "id": id,
        "tenant_id": tenant_id,
        "job_id": job_id,
        "key": approval.key,
        "kind": approval.kind,
        "title": approval.title,
        "payload": approval.payload,
        "payload_digest": approval.payload_digest,
        "requester": approval.requester,
        "assignees": json.dumps(list(approval.assignees)),
        "on_expiry": approval.on_expiry,
        "on_deny": approval.on_deny,
        "token_hash": approval.token_hash,
        "now": now,
        "expires_at": expires,
    }
    conn.execute(SQL["insert_approval"], row)
    statement, wait = open_wait(Wait(approval.key, approval.kind, None, id))
    conn.execute(SQL[statement], {**wait, "job_id": job_id, "now": now})
    note = request_note(approval, None if expires is None else CODEC.time(expires))
    job = LockedJob(conn, job_id, tenant_id)
    job.write_event(conn, now, "approval_requested", json.dumps(note, ensure_ascii=False))
    conn.execute(SQL["advance_heads"], {"heads": json.dumps({job_id: job.head}), "now": now})
    return get_approval(conn, id, tenant_id)


def replace_token(conn: sqlite3.Connection, now: int, tenant_id: str, approval_id: UUID, token_hash: str) -> Approval:
    """See `protocol.ApprovalStore.replace_token`."""
    row = lock_approval(conn, now, approval_id, tenant_id)
    expires = None if row["expires_at"] is None else CODEC.time(row["expires_at"])
    check_pending(approval_id, row["status"], row["decided_by"], bool(row["expired"]), expires)
    conn.execute(SQL["replace_token"], {"approval_id": str(approval_id), "token_hash": token_hash})
    return get_approval(conn, approval_id, tenant_id)
