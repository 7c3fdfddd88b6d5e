"""Questions to people: asked under a lease, decided by anybody who may, expired by anybody's chore."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, cast
from uuid import UUID

from perdure.model.approvals import Approval, ApprovalStatus, Decide, NewApproval, denied_text, expired_text
from perdure.model.jobs import Lease, Page
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
from perdure.store.rows import Row, approval_of
from perdure.store.sqlite.engine.base import SQL, Base, Held
from perdure.store.sqlite.engine.database import CODEC, span
from perdure.store.sqlite.engine.writer import NEWS, NOTHING, WORK
from perdure.store.sqlite.jobs.read import texts
from perdure.store.sqlite.leases.lease_check import held_claim

_SUSPENDED = (Status.PARKED, Status.WAITING_FOR_APPROVAL)


def _locked(conn: sqlite3.Connection, now: int, approval_id: UUID | str, tenant: str) -> sqlite3.Row:
    row: sqlite3.Row | None = conn.execute(
        SQL["lock_approval"], {"id": str(approval_id), "now": now, "tenant": tenant}
    ).fetchone()
    if row is None:
        raise approval_not_found(approval_id)
    return row


def _get(conn: sqlite3.Connection, approval_id: UUID | str, tenant: str) -> Approval:
    row = conn.execute(SQL["get_approval"], (str(approval_id), tenant)).fetchone()
    if row is None:
        raise approval_not_found(approval_id)
    return approval_of(cast("Row", row), CODEC)


def _settle(
    conn: sqlite3.Connection,
    now: int,
    approval: sqlite3.Row,
    tenant: str,
    values: dict[str, Any],
    note: dict[str, Any],
    failure: tuple[str, str] | None,
) -> None:
    """Decide an approval, write it to the log, and fail the job that is suspended on it if `failure` says so."""
    job = Held(conn, approval["job_id"], tenant)
    if not job.status.terminal:
        job.write_event(conn, now, "approval_decided", json.dumps(note, ensure_ascii=False))
    conn.execute(SQL["settle_approval"], values | {"id": approval["id"], "now": now})
    suspended = job.status in _SUSPENDED and job.claim is None
    if failure and suspended and conn.execute(SQL["waits_on"], (job.id, approval["id"])).fetchone():
        error, kind = failure
        said = json.dumps(note | {"error": error, "error_kind": kind}, ensure_ascii=False)
        conn.execute(
            SQL["fail_suspended"], {"id": job.id, "now": now, "error": error, "error_kind": kind, "note": said}
        )


def expire_approval(conn: sqlite3.Connection, now: int, approval: sqlite3.Row, tenant: str) -> None:
    """Settle an approval whose time has run out."""
    note = {"approval": approval["id"], "key": approval["key"], "decision": "EXPIRED", "via": "system"}
    values = {"status": ApprovalStatus.EXPIRED, "by": None, "via": "system", "comment": None, "edited": None}
    failure = (expired_text(approval["key"]), "expired") if approval["on_expiry"] == "fail" else None
    _settle(conn, now, approval, tenant, values, note, failure)


class Approvals(Base):
    """See `protocol.ApprovalStore`."""

    async def request_approval(self, lease: Lease, approval: NewApproval) -> Approval:
        """See `protocol.ApprovalStore.request_approval`."""

        def one(conn: sqlite3.Connection, now: int) -> Approval:
            job_id = str(lease.job_id)
            if held_claim(conn, now, self.tenant_id, lease) is None:
                raise lease_lost(lease)
            existing = conn.execute(SQL["approval_of_key"], (job_id, approval.key)).fetchone()
            if existing is not None:
                return _get(conn, existing["id"], self.tenant_id)
            id = str(approval.id)
            expires = None if approval.expires_in is None else now + span(approval.expires_in)
            conn.execute(
                SQL["insert_approval"],
                (
                    id, self.tenant_id, job_id, approval.key, approval.kind, approval.title, approval.payload,
                    approval.payload_digest, approval.requester, json.dumps(list(approval.assignees)),
                    approval.on_expiry, approval.on_deny, approval.token_hash, now, expires,
                ),
            )  # fmt: skip
            opened = {
                "job_id": job_id,
                "key": approval.key,
                "kind": approval.kind,
                "subject_id": id,
                "until": None,
                "now": now,
            }
            conn.execute(SQL["open_wait"], opened)
            asked: dict[str, Any] = {
                "key": approval.key,
                "approval": id,
                "kind": approval.kind,
                "title": approval.title,
                "payload_digest": approval.payload_digest,
                "requester": approval.requester,
                "assignees": list(approval.assignees),
                "expires_at": None if expires is None else CODEC.time(expires).isoformat(),
            }
            job = Held(conn, job_id, self.tenant_id)
            job.write_event(conn, now, "approval_requested", json.dumps(asked, ensure_ascii=False))
            conn.execute(SQL["append_head"], (now, job_id, job.head))
            return _get(conn, id, self.tenant_id)

        return await self._write(one, NEWS)

    async def replace_token(self, approval_id: UUID, token_hash: str) -> Approval:
        """See `protocol.ApprovalStore.replace_token`."""

        def one(conn: sqlite3.Connection, now: int) -> Approval:
            row = _locked(conn, now, approval_id, self.tenant_id)
            expires = None if row["expires_at"] is None else CODEC.time(row["expires_at"])
            check_pending(approval_id, row["status"], row["decided_by"], bool(row["expired"]), expires)
            conn.execute(SQL["replace_token"], (token_hash, str(approval_id)))
            return _get(conn, approval_id, self.tenant_id)

        return await self._write(one, NOTHING)

    async def get_approval(self, approval_id: UUID) -> Approval:
        """See `protocol.ApprovalStore.get_approval`."""
        return await self._read(lambda conn: _get(conn, approval_id, self.tenant_id))

    async def find_approval(self, text: str) -> UUID:
        """See `protocol.ApprovalStore.find_approval`."""
        suffix = id_suffix(text)
        if isinstance(suffix, UUID):
            meant, asked, where = "approval_meant", "last_asked", {"id": str(suffix), "tenant": self.tenant_id}
        else:
            meant, asked, where = "find_approval", "find_last_asked", {"suffix": suffix, "tenant": self.tenant_id}
        found = the_approval(text, suffix, await self._rows(meant, where))
        return found or last_of_job(text, await self._rows(asked, where))

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
        where = {
            "tenant": self.tenant_id,
            "before": None if before is None else str(before),
            "statuses": texts(statuses),
            "job_id": None if job_id is None else str(job_id),
            "assignee": assignee,
            "limit": limit + 1,
        }
        rows = await self._rows("list_approvals", where)
        items = tuple(approval_of(row, CODEC) for row in rows[:limit])
        return Page(items, str(items[-1].id) if items and len(rows) > limit else None)

    async def decide(self, decision: Decide) -> Approval:
        """See `protocol.ApprovalStore.decide`."""

        def one(conn: sqlite3.Connection, now: int) -> Approval:
            approval_id: UUID | str | None = decision.approval_id
            if decision.token_hash is not None:
                named = conn.execute(SQL["approval_of_token"], (decision.token_hash, self.tenant_id)).fetchone()
                if named is None or (approval_id is not None and str(approval_id) != named["id"]):
                    raise wrong_token()
                approval_id = named["id"]
            row = _locked(conn, now, str(approval_id), self.tenant_id)
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
            _settle(conn, now, row, self.tenant_id, values, note, failure if must_fail else None)
            return _get(conn, id, self.tenant_id)

        return await self._write(one, WORK | NEWS)
