"""Jobs are taken away from workers whose leases have expired."""

from __future__ import annotations

import json
import sqlite3
from typing import Any
from uuid import UUID

import structlog

from perdure.model.jobs import Reaped
from perdure.model.settlement import Settlement, settle_lost
from perdure.model.states import Status
from perdure.store.sqlite.engine.connection import savepoint
from perdure.store.sqlite.engine.statements import SQL, write_rows
from perdure.store.sqlite.leases.finish import settle_values
from perdure.store.sqlite.leases.lease_check import Claim

log = structlog.get_logger("perdure.store")


def reap(conn: sqlite3.Connection, now: int, tenant_id: str, worker_id: str, limit: int) -> list[Reaped]:
    """See `protocol.LeaseStore.reap`."""
    values = {"tenant_id": tenant_id, "now": now, "limit": limit}
    reaped: list[Reaped] = []
    for row in conn.execute(SQL["reap"], values).fetchall():
        try:
            with savepoint(conn):
                reaped.append(_reap(conn, now, row, tenant_id, worker_id))
        except (sqlite3.IntegrityError, ValueError) as error:  # it must not keep the others
            log.error("a damaged job cannot be reaped", job_id=row["job_id"], error=str(error))  # noqa: TRY400  its text says it all
    return reaped


def _reap(conn: sqlite3.Connection, now: int, lost: sqlite3.Row, tenant_id: str, reaper: str) -> Reaped:
    """Take one job away from its lost lease."""
    claim = Claim(lost["job_id"], tenant_id, lost["worker_id"], lost["attempt"], lost["version"], lost["cancel_note"])
    started = bool(lost["started"])
    end = settle_lost(
        worker_id=claim.worker_id,
        started=started,
        retry_count=lost["retry_count"],
        max_retries=lost["max_retries"],
        lost_starts=lost["lost_starts"],
        hung=bool(lost["hung"]),
        late=bool(lost["late"]),
        cancel_requested=lost["cancel_requested_at"] is not None,
    )
    conn.execute(SQL["drop_claim"], {"job_id": claim.job_id})
    conn.execute(SQL["settle_many"], settle_values(claim, end, now, _note(claim, end, reaper, hung=bool(lost["hung"]))))
    if started:
        if lost["expires_at"] <= now:
            why = (end.error or "its lease ran out", end.error_kind or "lease_lost")
        else:
            why = ("it did not stop when it was cancelled", "cancelled")
        run = (claim.job_id, claim.attempt, claim.worker_id, lost["claimed_at"], end.status.value, *why)
        write_rows(conn, "add_run", [run], now=now)
    return Reaped(UUID(claim.job_id), end.status, claim.worker_id, lost["kind"])


def _note(claim: Claim, end: Settlement, reaper: str, *, hung: bool) -> str:
    if end.status is Status.CANCELLED:
        return claim.cancel_note or "{}"
    said: dict[str, Any] = {
        "reason": "timeout" if hung else "lease_expired",
        "lost_worker": claim.worker_id,
        "actor": f"worker:{reaper}",
        "via": "reaper",
        "retry_count": end.retry_count,
    }
    if end.error is not None:
        said |= {"error": end.error, "error_kind": end.error_kind}
    return json.dumps(said)
