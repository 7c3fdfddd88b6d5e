"""Renewing leases, and what else a holder says about its lease."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from perdure.model.jobs import Lease
from perdure.model.states import Status
from perdure.store.errors import lease_lost
from perdure.store.sqlite.engine.codec import span
from perdure.store.sqlite.engine.statements import SQL
from perdure.store.sqlite.leases.lease_check import held_claim, holder_of, holds, live_claims


def renew(
    conn: sqlite3.Connection,
    now: int,
    tenant_id: str,
    leases: Sequence[Lease],
    ttl: int,
    started: Collection[UUID],
    ends: Mapping[UUID, float],
) -> set[UUID]:
    """See `protocol.LeaseStore.heartbeat`; ttl in microseconds."""
    claims = live_claims(conn, now, [str(lease.job_id) for lease in leases])
    live = [lease for lease in leases if holds(claims.get(str(lease.job_id)), holder_of(tenant_id, lease))]
    renewed = {str(id): (int(id in started), now + span(ends[id]) if id in ends else None) for id in _ids(live)}
    conn.execute(SQL["heartbeat"], {"leases": json.dumps(renewed), "ttl": ttl, "expires_at": now + ttl})
    return _ids(live)


def _ids(leases: Sequence[Lease]) -> set[UUID]:
    return {lease.job_id for lease in leases}


def set_waiting(conn: sqlite3.Connection, now: int, tenant_id: str, lease: Lease, waiting: bool) -> None:
    """See `protocol.LeaseStore.set_waiting`."""
    wanted = Status.WAITING if waiting else Status.RUNNING
    claim = held_claim(conn, now, tenant_id, lease)
    if claim is None:
        raise lease_lost(lease)
    id = claim.job_id
    if conn.execute(SQL["lock_job"], {"job_id": id, "tenant_id": tenant_id}).fetchone()["status"] == wanted:
        return
    moved = {"job_id": id, "version": claim.version + 1}
    conn.execute(SQL["append_leased"], moved)
    note = json.dumps({"worker": lease.worker_id})
    conn.execute(SQL["set_waiting"], {**moved, "status": wanted, "now": now, "note": note})
