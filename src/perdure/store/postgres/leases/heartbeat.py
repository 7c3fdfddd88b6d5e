"""Keeping jobs: renewing leases, and saying that a holder waits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from perdure.model.errors import JobNotFound
from perdure.model.jobs import Lease
from perdure.model.states import Status
from perdure.store.errors import lease_lost
from perdure.store.postgres.engine.database import Database, Transaction
from perdure.store.postgres.engine.locked_job import lock_job
from perdure.store.postgres.leases.lease_connection import LeaseConnection

LOCKED_PAUSES = (0.005, 0.02, 0.05, 0.1)
"""Seconds until a lease whose row is locked is renewed again: perdure's own writes hold theirs for milliseconds."""


async def renew(
    connection: LeaseConnection,
    tenant_id: str,
    leases: Sequence[Lease],
    *,
    ttl: float,
    started: Sequence[UUID],
    ends: Mapping[UUID, float],
) -> set[UUID]:
    """See `protocol.LeaseStore.heartbeat`."""
    left = sorted(leases, key=lambda lease: lease.job_id.int)
    duration, begun = timedelta(seconds=ttl), list(started)
    kept: set[UUID] = set()
    for pause in (*LOCKED_PAUSES, 0.0):
        its_ends = [ends.get(lease.job_id) for lease in left]
        rows = await connection.rows(
            "heartbeat", **_columns(left), ends=its_ends, ttl=duration, started=begun, tenant_id=tenant_id
        )
        kept |= {row["job_id"] for row in rows}
        left = [lease for lease in left if lease.job_id not in kept]
        if left:  # gone, or only locked?
            rows = await connection.rows("still_held", **_columns(left), tenant_id=tenant_id)
            held = {row["job_id"] for row in rows}
            left = [lease for lease in left if lease.job_id in held]
        if not left:
            return kept
        await asyncio.sleep(pause)
    return kept | {lease.job_id for lease in left}  # another session's lock is no reason to give a job up


def _columns(leases: Sequence[Lease]) -> dict[str, list[Any]]:
    return {
        "ids": [lease.job_id for lease in leases],
        "attempts": [lease.attempt for lease in leases],
        "worker_ids": [lease.worker_id for lease in leases],
    }


async def set_waiting(database: Database, tenant_id: str, lease: Lease, waiting: bool) -> None:
    """See `protocol.LeaseStore.set_waiting`. Asking for what is already so changes nothing."""
    wanted = Status.WAITING if waiting else Status.RUNNING

    async def work(tx: Transaction) -> None:
        try:
            job = await lock_job(tx, lease.job_id, tenant_id)
        except JobNotFound:
            raise lease_lost(lease) from None
        if not job.held_by(lease, tenant_id):
            raise lease_lost(lease)
        if job.status is not wanted:
            await tx.rows(
                "set_waiting",
                job_id=lease.job_id,
                attempt=lease.attempt,
                worker_id=lease.worker_id,
                waiting=waiting,
                tenant_id=tenant_id,
            )

    await database.transact(work)
