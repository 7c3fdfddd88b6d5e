"""Approvals as people and programs look at them."""

from __future__ import annotations

from uuid import UUID

from perdure.model.approvals import Approval
from perdure.store.errors import approval_not_found
from perdure.store.postgres.engine.codec import CODEC
from perdure.store.postgres.engine.database import Database, Transaction
from perdure.store.rows import approval_of


async def read_approval(source: Database | Transaction, approval_id: UUID, tenant_id: str) -> Approval:
    """Raises ApprovalNotFound."""
    row = await source.row("get_approval", approval_id=approval_id, tenant_id=tenant_id)
    if row is None:
        raise approval_not_found(approval_id)
    return approval_of(row, CODEC)
