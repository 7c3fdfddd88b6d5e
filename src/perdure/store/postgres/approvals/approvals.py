"""Questions to people: asked once by the holder of a job, decided once by a person, or by time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import structlog

from perdure.model.approvals import Approval, ApprovalStatus, Decide, NewApproval, denied_text, expired_text
from perdure.model.errors import JobNotFound, PerdureError
from perdure.model.events import NewEvent
from perdure.model.jobs import Lease, Page, Wait
from perdure.model.states import Status
from perdure.store.approval_lookup import last_of_job, the_approval
from perdure.store.errors import (
    approval_not_found,
    check_decision,
    check_pending,
    decision_note,
    id_suffix,
    lease_lost,
    parse_cursor,
    wrong_token,
)
from perdure.store.postgres.engine.codec import SPELLING
from perdure.store.postgres.engine.driver_errors import out_of_reach
from perdure.store.postgres.engine.hot_writer import Base
from perdure.store.postgres.engine.transactions import Held, Tx
from perdure.store.postgres.leases.record import Entry, write_entries
from perdure.store.rows import Row, approval_of

log = structlog.get_logger("perdure.store")

SUSPENDED = frozenset({Status.PARKED, Status.WAITING_FOR_APPROVAL})


class Approvals(Base):
    """See `protocol.ApprovalStore`."""

    async def request_approval(self, lease: Lease, approval: NewApproval) -> Approval:
        """See `protocol.ApprovalStore.request_approval`."""

        async def work(tx: Tx) -> Approval:
            claim = await tx.row("lock_claim", lease.job_id)
            if claim is not None and claim["tenant_id"] != tx.tenant:
                claim = None
            if (
                claim is None
                or not claim["live"]
                or (claim["attempt"], claim["worker_id"]) != (lease.attempt, lease.worker_id)
            ):
                raise lease_lost(lease)
            existing = await tx.row("approval_of_key", lease.job_id, approval.key)
            if existing is not None:
                return await _read(tx, existing["id"])
            await _insert(tx, lease, approval)
            return await _read(tx, approval.id)

        stored = await self._db.transact(work)
        self._bell.ring("news")
        return stored

    async def replace_token(self, approval_id: UUID, token_hash: str) -> Approval:
        """See `protocol.ApprovalStore.replace_token`."""

        async def work(tx: Tx) -> Approval:
            row = await _lock(tx, approval_id)
            check_pending(approval_id, row["status"], row["decided_by"], bool(row["expired"]), row["expires_at"])
            await tx.rows("replace_token", approval_id, token_hash)
            return await _read(tx, approval_id)

        return await self._db.transact(work)

    async def get_approval(self, approval_id: UUID) -> Approval:
        """See `protocol.ApprovalStore.get_approval`."""
        row = await self._db.row("get_approval", approval_id, self.tenant)
        if row is None:
            raise approval_not_found(approval_id)
        return approval_of(row, SPELLING)

    async def find_approval(self, text: str) -> UUID:
        """See `protocol.ApprovalStore.find_approval`."""
        suffix = id_suffix(text)
        if isinstance(suffix, UUID):
            meant, asked = "approval_meant", "last_asked"
        else:
            meant, asked = "find_approval", "find_last_asked"
        found = the_approval(text, suffix, await self._db.rows(meant, suffix, self.tenant))
        return found or last_of_job(text, await self._db.rows(asked, suffix, self.tenant))

    async def list_approvals(
        self,
        *,
        statuses: Sequence[ApprovalStatus] = (),
        job_id: UUID | None = None,
        assignee: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Approval]:
        """See `protocol.ApprovalStore.list_approvals`."""
        before = parse_cursor(cursor)
        wanted = [status.value for status in statuses] or None
        rows = await self._db.rows("list_approvals", self.tenant, before, wanted, job_id, assignee, limit + 1)
        items = tuple(approval_of(row, SPELLING) for row in rows[:limit])
        return Page(items, str(items[-1].id) if items and len(rows) > limit else None)

    async def decide(self, decision: Decide) -> Approval:
        """See `protocol.ApprovalStore.decide`."""
        status = "APPROVED" if decision.verdict == "approve" else "DENIED"

        async def work(tx: Tx) -> Approval:
            approval_id, job_id = await _addressed(tx, decision)
            try:
                job = await tx.lock(job_id)
            except JobNotFound:  # pruned between the two statements
                raise approval_not_found(approval_id) from None
            row = await _lock(tx, approval_id)
            if decision.token_hash is not None and row["token_hash"] != decision.token_hash:
                raise wrong_token()  # replaced while we waited
            if tx.again and row["status"] == status and _is_ours(row, decision):
                return await _read(tx, approval_id)
            check_decision(
                decision,
                approval_id=approval_id,
                kind=row["kind"],
                status=row["status"],
                decided_by=row["decided_by"],
                expired=bool(row["expired"]),
                expires_at=row["expires_at"],
                payload_digest=row["payload_digest"],
                assignees=tuple(row["assignees"]),
            )
            note = decision_note(decision, approval_id, row["key"])
            fails = status == "DENIED" and row["on_deny"] == "fail"
            failure = ("denied", denied_text(row["key"], decision.by, decision.comment)) if fails else None
            await _settle(
                tx, job, row, status, note, by=decision.by, door=decision.door, comment=decision.comment,
                edited_payload=decision.edited_payload, failure=failure,
            )  # fmt: skip
            return await _read(tx, approval_id)

        approval = await self._db.transact(work)
        self._bell.ring("work", "news")
        return approval

    async def expire(self, *, limit: int = 100) -> int:
        """See `protocol.LeaseStore.expire`."""
        count = len(await self._db.sweep("expire_jobs", "late_jobs", limit, self.tenant, limit=limit))
        for row in await self._db.rows("due_approvals", limit, self.tenant):
            try:
                count += await self._expire_approval(row["id"], row["job_id"])
            except PerdureError as error:  # a damaged job, or one that a stranger has locked: the others go on
                if out_of_reach(error):
                    raise
                log.error("an approval cannot expire", approval_id=str(row["id"]), error=str(error))  # noqa: TRY400
        if count:
            self._bell.ring("work", "news")
        return count

    async def _expire_approval(self, approval_id: UUID, job_id: UUID) -> bool:
        async def work(tx: Tx) -> bool:
            job = await tx.lock(job_id)
            row = await _lock(tx, approval_id)
            if row["status"] != "PENDING" or not row["expired"]:
                return False
            note = {"approval": str(approval_id), "key": row["key"], "decision": "EXPIRED", "door": "system"}
            failure = ("expired", expired_text(row["key"])) if row["on_expiry"] == "fail" else None
            await _settle(tx, job, row, "EXPIRED", note, by=None, door="system", failure=failure)
            return True

        try:
            return await self._db.transact(work)
        except JobNotFound:  # pruned by hand meanwhile
            return False


async def _read(tx: Tx, approval_id: UUID) -> Approval:
    row = await tx.row("get_approval", approval_id, tx.tenant)
    if row is None:
        raise approval_not_found(approval_id)
    return approval_of(row, SPELLING)


async def _lock(tx: Tx, approval_id: UUID) -> Row:
    row = await tx.row("lock_approval", approval_id, tx.tenant)
    if row is None:
        raise approval_not_found(approval_id)
    return row


async def _insert(tx: Tx, lease: Lease, new: NewApproval) -> None:
    row = await tx.row(
        "insert_approval", new.id, tx.tenant, lease.job_id, new.key, new.kind, new.title, new.payload, new.payload_digest,
        new.requester, list(new.assignees), new.on_expiry, new.on_deny, new.token_hash, new.expires_in,
    )  # fmt: skip
    assert row is not None
    event: dict[str, Any] = {
        "key": new.key,
        "approval": str(new.id),
        "kind": new.kind,
        "title": new.title,
        "requester": new.requester,
    }
    if new.assignees:
        event["assignees"] = new.assignees
    if row["expires_at"] is not None:
        event["expires_at"] = row["expires_at"].isoformat()
    requested = NewEvent("approval_requested", json.dumps(event, ensure_ascii=False))
    # No time of its own: the approval's expiry is settled whether or not a worker serves the queue.
    wait = Wait(new.key, new.kind, None, str(new.id))
    [result] = await write_entries(tx.rows, [Entry(lease, [requested], None, [wait], ())], tx.tenant)
    if isinstance(result, Exception):
        raise result


async def _addressed(tx: Tx, decision: Decide) -> tuple[UUID, UUID]:
    """The ids of the approval a decision means and of its job."""
    if decision.token_hash is not None:
        row = await tx.row("approval_of_token", decision.token_hash, tx.tenant)
        if row is None or decision.approval_id not in (None, row["id"]):
            raise wrong_token()
    elif decision.approval_id is not None:
        row = await tx.row("approval_job", decision.approval_id, tx.tenant)
        if row is None:
            raise approval_not_found(decision.approval_id)
    else:
        raise wrong_token()
    return row["id"], row["job_id"]


def _is_ours(row: Row, decision: Decide) -> bool:
    """Whether a decision that stands already is this very one, committed before its answer was lost."""
    return (row["decided_by"], row["decided_door"], row["comment"], row["decision_payload"]) == (
        decision.by,
        decision.door,
        decision.comment,
        decision.edited_payload,
    )


async def _settle(
    tx: Tx,
    job: Held,
    approval: Row,
    status: str,
    note: dict[str, Any],
    *,
    by: str | None,
    door: str,
    comment: str | None = None,
    edited_payload: str | None = None,
    failure: tuple[str, str] | None,
) -> None:
    """Write a decision and its event; wake the job that is suspended on it, or fail it (kind, message)."""
    if not job.status.terminal:
        await tx.write_event(job, "approval_decided", json.dumps(note, ensure_ascii=False))
    suspended = job.claim is None and job.status in SUSPENDED
    waits = failure and suspended and await tx.row("waits_on", job.id, approval["id"])
    await tx.rows("settle_approval", approval["id"], status, by, door, comment, edited_payload)
    if failure and waits:
        kind, message = failure
        failing = {**note, "error": message, "error_kind": kind}
        await tx.rows("fail_suspended", job.id, message, kind, json.dumps(failing, ensure_ascii=False))
