"""Asking people: by the worker that holds the job."""

from __future__ import annotations

import json

from perdure.model.approvals import Approval, NewApproval
from perdure.model.effects import open_wait
from perdure.model.events import NewEvent
from perdure.model.jobs import Lease, Wait
from perdure.store.approval_notes import request_note
from perdure.store.errors import lease_lost
from perdure.store.postgres.approvals.read import read_approval
from perdure.store.postgres.engine.database import Database, Transaction
from perdure.store.postgres.engine.locked_job import is_live
from perdure.store.postgres.leases.record import Entry, write_entries


async def request(database: Database, tenant_id: str, lease: Lease, approval: NewApproval) -> Approval:
    """See `protocol.ApprovalStore.request_approval`."""

    async def work(tx: Transaction) -> Approval:
        claim = await tx.row("lock_claim", job_id=lease.job_id)
        if claim is None or not is_live(claim, lease, tenant_id):
            raise lease_lost(lease)
        existing = await tx.row("approval_of_key", job_id=lease.job_id, kind=approval.kind, key=approval.key)
        if existing is not None:
            return await read_approval(tx, existing["id"], tenant_id)
        await _insert(tx, tenant_id, lease, approval)
        return await read_approval(tx, approval.id, tenant_id)

    return await database.transact(work)


async def _insert(tx: Transaction, tenant_id: str, lease: Lease, new: NewApproval) -> None:
    row = await tx.row(
        "insert_approval",
        approval_id=new.id,
        tenant_id=tenant_id,
        job_id=lease.job_id,
        key=new.key,
        kind=new.kind,
        title=new.title,
        payload=new.payload,
        payload_digest=new.payload_digest,
        requester=new.requester,
        assignees=list(new.assignees),
        on_expiry=new.on_expiry,
        on_deny=new.on_deny,
        token_hash=new.token_hash,
        expires_in=new.expires_in,
    )
    assert row is not None
    note = request_note(new, row["expires_at"])
    requested = NewEvent("approval_requested", json.dumps(note, ensure_ascii=False))
    # No time of its own: the approval's expiry is settled whether or not a worker serves the queue.
    wait = Wait(new.key, new.kind, None, str(new.id))
    [result] = await write_entries(tx.rows, [Entry(tenant_id, lease, [requested], [open_wait(wait)])])
    if isinstance(result, Exception):
        raise result
