"""Taking due jobs."""

from __future__ import annotations

import json
from datetime import timedelta

import structlog

from perdure.model.jobs import ClaimedJob, lane_of
from perdure.store.postgres.engine.codec import CODEC
from perdure.store.postgres.engine.driver_errors import DAMAGED
from perdure.store.postgres.leases.lease_connection import LeaseConnection
from perdure.store.rows import Row, claimed_job_of

log = structlog.get_logger("perdure.store")


async def claim(
    connection: LeaseConnection, tenant_id: str, *, worker_id: str, queue: str, limit: int, ttl: float
) -> list[ClaimedJob]:
    """See `protocol.LeaseStore.claim`."""
    duration = timedelta(seconds=ttl)
    values = {
        "lane": lane_of(tenant_id, queue),
        "tenant_id": tenant_id,
        "worker_id": worker_id,
        "ttl": duration,
        "note": json.dumps({"worker": worker_id}),
    }
    try:
        rows = await connection.rows("claim", only_job=None, limit=limit, **values)
    except DAMAGED:
        rows = await _claim_singly(connection, limit, values)
    return [claimed_job_of(row, CODEC, worker_id=worker_id, expires_at=row["claimed_at"] + duration) for row in rows]


async def _claim_singly(connection: LeaseConnection, limit: int, values: dict[str, object]) -> list[Row]:
    """One damaged job must not block its lane: find it, put it aside for a while, report it, and claim the others."""
    claimed: list[Row] = []
    for _ in range(2 * limit):
        front = await connection.rows("claim_front", lane=values["lane"], tenant_id=values["tenant_id"])
        if not front or len(claimed) == limit:
            break
        job_id = front[0]["job_id"]
        try:
            claimed += await connection.rows("claim", only_job=job_id, limit=1, **values)
        except DAMAGED as error:
            log.error(  # noqa: TRY400  the error says it all
                "a damaged job cannot be claimed; put aside for 5 minutes", job_id=str(job_id), error=str(error)
            )
            await connection.rows("push_back", job_id=job_id)
    return claimed
