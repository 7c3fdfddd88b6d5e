"""The approvals of one tenant: requested under a lease, decided by people, expired by any worker."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from perdure.model.approvals import Approval, ApprovalStatus, Decide, NewApproval
from perdure.model.jobs import Lease, Page
from perdure.store.errors import parse_cursor
from perdure.store.rows import approval_of
from perdure.store.sqlite.approvals.decide import decide
from perdure.store.sqlite.approvals.read import find_approval, get_approval
from perdure.store.sqlite.approvals.request import replace_token, request_approval
from perdure.store.sqlite.approvals.rules import SqliteRules
from perdure.store.sqlite.engine.batch import NEWS, NOTHING, WORK
from perdure.store.sqlite.engine.codec import CODEC, json_list
from perdure.store.sqlite.engine.engine import Engine


class SqliteApprovals(SqliteRules):
    """See `protocol.ApprovalStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._engine = engine
        self._tenant_id = tenant_id

    async def request_approval(self, lease: Lease, approval: NewApproval) -> Approval:
        """See `protocol.ApprovalStore.request_approval`."""
        return await self._engine.write(
            lambda conn, now: request_approval(conn, now, self._tenant_id, lease, approval),
            NEWS,
        )

    async def replace_token(self, approval_id: UUID, token_hash: str) -> Approval:
        """See `protocol.ApprovalStore.replace_token`."""
        return await self._engine.write(
            lambda conn, now: replace_token(conn, now, self._tenant_id, approval_id, token_hash),
            NOTHING,
        )

    async def get_approval(self, approval_id: UUID) -> Approval:
        """See `protocol.ApprovalStore.get_approval`."""
        return await self._engine.read(lambda conn: get_approval(conn, approval_id, self._tenant_id))

    async def find_approval(self, text: str) -> UUID:
        """See `protocol.ApprovalStore.find_approval`."""
        return await find_approval(self._engine, self._tenant_id, text)

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
        rows = await self._engine.rows(
            "list_approvals",
            tenant_id=self._tenant_id,
            before=None if before is None else str(before),
            statuses=json_list(statuses),
            job_id=None if job_id is None else str(job_id),
            assignee=assignee,
            limit=limit + 1,
        )
        items = tuple(approval_of(row, CODEC) for row in rows[:limit])
        return Page(items, str(items[-1].id) if items and len(rows) > limit else None)

    async def decide(self, decision: Decide) -> Approval:
        """See `protocol.ApprovalStore.decide`."""
        return await self._engine.write(
            lambda conn, now: decide(conn, now, self._tenant_id, decision),
            WORK | NEWS,
        )
