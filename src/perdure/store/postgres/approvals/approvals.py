"""Questions to people of one tenant: asked once by the holder of a job, decided once by a person, or by time."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from perdure.model.approvals import Approval, ApprovalStatus, Decide, NewApproval
from perdure.model.jobs import Lease, Page
from perdure.store.approval_lookup import last_of_job, the_approval
from perdure.store.errors import check_pending, id_suffix, parse_cursor
from perdure.store.postgres.approvals.decide import decide, lock_approval
from perdure.store.postgres.approvals.read import read_approval
from perdure.store.postgres.approvals.request import request
from perdure.store.postgres.approvals.rules import PostgresRules
from perdure.store.postgres.engine.codec import CODEC
from perdure.store.postgres.engine.database import Transaction
from perdure.store.postgres.engine.engine import Engine
from perdure.store.rows import approval_of


class PostgresApprovals(PostgresRules):
    """See `protocol.ApprovalStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._database = engine.database
        self._notifier = engine.notifier
        self._tenant_id = tenant_id

    async def request_approval(self, lease: Lease, approval: NewApproval) -> Approval:
        """See `protocol.ApprovalStore.request_approval`."""
        stored = await request(self._database, self._tenant_id, lease, approval)
        self._notifier.notify(self._tenant_id, "news")
        return stored

    async def replace_token(self, approval_id: UUID, token_hash: str) -> Approval:
        """See `protocol.ApprovalStore.replace_token`."""

        async def work(tx: Transaction) -> Approval:
            row = await lock_approval(tx, approval_id, self._tenant_id)
            check_pending(approval_id, row["status"], row["decided_by"], bool(row["expired"]), row["expires_at"])
            await tx.rows("replace_token", approval_id=approval_id, token_hash=token_hash)
            return await read_approval(tx, approval_id, self._tenant_id)

        return await self._database.transact(work)

    async def get_approval(self, approval_id: UUID) -> Approval:
        """See `protocol.ApprovalStore.get_approval`."""
        return await read_approval(self._database, approval_id, self._tenant_id)

    async def find_approval(self, text: str) -> UUID:
        """See `protocol.ApprovalStore.find_approval`."""
        id, tenant_id = id_suffix(text), self._tenant_id
        if isinstance(id, UUID):
            rows = await self._database.rows("approval_meant", id=id, tenant_id=tenant_id)
            found = the_approval(text, id, rows)
            return found or last_of_job(text, await self._database.rows("last_asked", job_id=id, tenant_id=tenant_id))
        found = the_approval(text, id, await self._database.rows("find_approval", suffix=id, tenant_id=tenant_id))
        return found or last_of_job(text, await self._database.rows("find_last_asked", suffix=id, tenant_id=tenant_id))

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
        rows = await self._database.rows(
            "list_approvals",
            tenant_id=self._tenant_id,
            before=parse_cursor(cursor),
            statuses=[status.value for status in statuses] or None,
            job_id=job_id,
            assignee=assignee,
            limit=limit + 1,
        )
        items = tuple(approval_of(row, CODEC) for row in rows[:limit])
        return Page(items, str(items[-1].id) if items and len(rows) > limit else None)

    async def decide(self, decision: Decide) -> Approval:
        """See `protocol.ApprovalStore.decide`."""
        approval = await decide(self._database, self._tenant_id, decision)
        self._notifier.notify(self._tenant_id, "work", "news")
        return approval
