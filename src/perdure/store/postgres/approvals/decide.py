"""Deciding approvals: once, by a person or by expiry."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from perdure.model.approvals import Approval, Decide, denied_text
from perdure.model.errors import JobNotFound
from perdure.model.states import Status
from perdure.store.approval_notes import decision_note
from perdure.store.errors import approval_not_found, check_decision, wrong_token
from perdure.store.postgres.approvals.read import read_approval
from perdure.store.postgres.approvals.rules import insert_rule
from perdure.store.postgres.engine.database import Database, Transaction
from perdure.store.postgres.engine.locked_job import LockedJob, lock_job
from perdure.store.rows import Row

SUSPENDED = frozenset({Status.PARKED, Status.WAITING_FOR_APPROVAL})


class Decision(NamedTuple):
    """What becomes of an approval. failure: the kind and message with which its job fails, if it is suspended on it."""

    status: str
    note: Mapping[str, Any]
    via: str
    by: str | None = None
    comment: str | None = None
    edited_payload: str | None = None
    failure: tuple[str, str] | None = None


async def decide(database: Database, tenant_id: str, asked: Decide) -> Approval:
    """See `protocol.ApprovalStore.decide`."""
    status = "APPROVED" if asked.verdict == "approve" else "DENIED"

    async def work(tx: Transaction) -> Approval:
        approval_id, job_id = await _addressed(tx, tenant_id, asked)
        try:
            job = await lock_job(tx, job_id, tenant_id)
        except JobNotFound:  # pruned between the two statements
            raise approval_not_found(approval_id) from None
        row = await lock_approval(tx, approval_id, tenant_id)
        if asked.token_hash is not None and row["token_hash"] != asked.token_hash:
            raise wrong_token()  # replaced while we waited
        if tx.again and row["status"] == status and _is_same(row, asked):
            return await read_approval(tx, approval_id, tenant_id)
        check_decision(
            asked,
            approval_id=approval_id,
            kind=row["kind"],
            status=row["status"],
            decided_by=row["decided_by"],
            expired=bool(row["expired"]),
            expires_at=row["expires_at"],
            payload_digest=row["payload_digest"],
            assignees=tuple(row["assignees"]),
        )
        fails = status == "DENIED" and row["on_deny"] == "fail"
        decision = Decision(
            status,
            decision_note(asked, approval_id, row["key"]),
            via=asked.via,
            by=asked.by,
            comment=asked.comment,
            edited_payload=asked.edited_payload,
            failure=("denied", denied_text(row["key"], asked.by, asked.comment)) if fails else None,
        )
        await settle(tx, job, row, decision)
        if asked.rule is not None:
            await insert_rule(tx, tenant_id, asked.rule)
        return await read_approval(tx, approval_id, tenant_id)

    return await database.transact(work)


async def lock_approval(tx: Transaction, approval_id: UUID, tenant_id: str) -> Row:
    """Lock an approval, whose job is locked already. Raises ApprovalNotFound."""
    row = await tx.row("lock_approval", approval_id=approval_id, tenant_id=tenant_id)
    if row is None:
        raise approval_not_found(approval_id)
    return row


async def settle(tx: Transaction, job: LockedJob, approval: Row, decision: Decision) -> None:
    """Write a decision and its event; wake the job that is suspended on it, or fail it."""
    if not job.status.terminal:
        await job.append(tx, "approval_decided", json.dumps(decision.note, ensure_ascii=False))
    waits = None
    if decision.failure and job.claim is None and job.status in SUSPENDED:
        waits = await tx.row("waits_on", job_id=job.id, approval_id=approval["id"])
    await tx.rows(
        "settle_approval",
        approval_id=approval["id"],
        status=decision.status,
        by=decision.by,
        via=decision.via,
        comment=decision.comment,
        edited_payload=decision.edited_payload,
    )
    if decision.failure and waits:
        kind, message = decision.failure
        note = json.dumps({**decision.note, "error": message, "error_kind": kind}, ensure_ascii=False)
        await tx.rows("fail_suspended", job_id=job.id, error=message, error_kind=kind, note=note)


async def _addressed(tx: Transaction, tenant_id: str, asked: Decide) -> tuple[UUID, UUID]:
    """The ids of the approval a decision means and of its job."""
    if asked.token_hash is not None:
        row = await tx.row("approval_of_token", token_hash=asked.token_hash, tenant_id=tenant_id)
        if row is None or asked.approval_id not in (None, row["id"]):
            raise wrong_token()
    elif asked.approval_id is not None:
        row = await tx.row("approval_job", approval_id=asked.approval_id, tenant_id=tenant_id)
        if row is None:
            raise approval_not_found(asked.approval_id)
    else:
        raise wrong_token()
    return row["id"], row["job_id"]


def _is_same(row: Row, asked: Decide) -> bool:
    """Whether a decision that stands already is this one, committed before its answer was lost."""
    return (row["decided_by"], row["decided_via"], row["comment"], row["decision_payload"]) == (
        asked.by,
        asked.via,
        asked.comment,
        asked.edited_payload,
    )
