"""Reading approvals, and finding one by an id or its end."""

from __future__ import annotations

import sqlite3
from typing import cast
from uuid import UUID

from perdure.model.approvals import Approval
from perdure.store.approval_lookup import last_of_job, the_approval
from perdure.store.errors import approval_not_found, id_suffix
from perdure.store.rows import Row, approval_of
from perdure.store.sqlite.engine.codec import CODEC
from perdure.store.sqlite.engine.engine import Engine
from perdure.store.sqlite.engine.statements import SQL


def get_approval(conn: sqlite3.Connection, approval_id: UUID | str, tenant_id: str) -> Approval:
    """Raises ApprovalNotFound."""
    row = conn.execute(SQL["get_approval"], {"approval_id": str(approval_id), "tenant_id": tenant_id}).fetchone()
    if row is None:
        raise approval_not_found(approval_id)
    return approval_of(cast("Row", row), CODEC)


async def find_approval(engine: Engine, tenant_id: str, text: str) -> UUID:
    """See `protocol.ApprovalStore.find_approval`."""
    suffix = id_suffix(text)
    if isinstance(suffix, UUID):
        own, of_job, values = "approval_meant", "last_asked", {"id": str(suffix)}
    else:
        own, of_job, values = "find_approval", "find_last_asked", {"suffix": suffix}
    found = the_approval(text, suffix, await engine.rows(own, tenant_id=tenant_id, **values))
    return found or last_of_job(text, await engine.rows(of_job, tenant_id=tenant_id, **values))
