"""Deadlines of jobs and approvals that no worker holds."""

from __future__ import annotations

from uuid import UUID

import structlog

from perdure.model.approvals import expired_text
from perdure.model.errors import JobNotFound, PerdureError
from perdure.store.postgres.approvals.decide import Decision, lock_approval, settle
from perdure.store.postgres.engine.database import Database, Transaction
from perdure.store.postgres.engine.driver_errors import out_of_reach
from perdure.store.postgres.engine.locked_job import lock_job

log = structlog.get_logger("perdure.store")


async def expire(database: Database, tenant_id: str, *, limit: int) -> int:
    """See `protocol.LeaseStore.expire`."""
    count = len(await database.sweep("expire_jobs", "late_jobs", tenant_id=tenant_id, limit=limit))
    for row in await database.rows("due_approvals", limit=limit, tenant_id=tenant_id):
        try:
            count += await _expire_approval(database, tenant_id, row["id"], row["job_id"])
        except PerdureError as error:  # a damaged job, or one that another session has locked: the others go on
            if out_of_reach(error):
                raise
            log.error("an approval cannot expire", approval_id=str(row["id"]), error=str(error))  # noqa: TRY400  the error says it all
    return count


async def _expire_approval(database: Database, tenant_id: str, approval_id: UUID, job_id: UUID) -> bool:
    async def work(tx: Transaction) -> bool:
        job = await lock_job(tx, job_id, tenant_id)
        row = await lock_approval(tx, approval_id, tenant_id)
        if row["status"] != "PENDING" or not row["expired"]:
            return False
        note = {"approval": str(approval_id), "key": row["key"], "decision": "EXPIRED", "via": "system"}
        failure = ("expired", expired_text(row["key"])) if row["on_expiry"] == "fail" else None
        await settle(tx, job, row, Decision("EXPIRED", note, via="system", failure=failure))
        return True

    try:
        return await database.transact(work)
    except JobNotFound:  # pruned meanwhile
        return False
