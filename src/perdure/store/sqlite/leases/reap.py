"""Jobs are taken away from workers whose leases have expired."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from typing import Any, NamedTuple
from uuid import UUID

import structlog

from perdure.model.jobs import Reaped
from perdure.model.settlement import Loss, Settlement, settle_lost
from perdure.model.states import Status
from perdure.store.sqlite.engine.codec import CODEC, span
from perdure.store.sqlite.engine.connection import savepoint
from perdure.store.sqlite.engine.statements import SQL, write_rows
from perdure.store.sqlite.leases.finish import settle_values
from perdure.store.sqlite.leases.lease_check import Claim

log = structlog.get_logger("perdure.store")


class Crowd(NamedTuple):
    """The started jobs of a worker that lost some."""

    started: int
    losses: int
    top: int
    """The highest suspicion among them."""
    tops: int
    """How many have it."""

    def loss(self, suspicion: int, place: int) -> Loss:
        """What was lost together with one of them."""
        return Loss(self.started - 1 + self.losses, not (suspicion == self.top and self.tops == 1), place)


def reap(conn: sqlite3.Connection, now: int, tenant_id: str, worker_id: str, limit: int) -> list[Reaped]:
    """See `protocol.LeaseStore.reap`."""
    values = {"tenant_id": tenant_id, "now": now, "limit": limit}
    reaped: list[Reaped] = []
    rows = conn.execute(SQL["reap"], values).fetchall()
    workers = json.dumps(sorted({row["worker_id"] for row in rows if row["started"]}))
    crowds = {
        row["worker_id"]: Crowd(row["started"], row["losses"], row["top"], row["tops"])
        for row in (
            conn.execute(SQL["crowds"], {"worker_ids": workers, "tenant_id": tenant_id}) if workers != "[]" else ()
        )
    }
    losses: Counter[str] = Counter()
    for row in rows:
        crowd = crowds.get(row["worker_id"], Crowd(1, 0, 0, 1))
        loss = crowd.loss(row["suspicion"], losses[row["worker_id"]])
        try:
            with savepoint(conn):
                reaped.append(_reap(conn, now, row, loss, tenant_id, worker_id))
        except (sqlite3.IntegrityError, ValueError) as error:  # it must not keep the others
            log.error("a damaged job cannot be reaped", job_id=row["job_id"], error=str(error))  # noqa: TRY400  its text says it all
        else:
            losses[row["worker_id"]] += row["started"]
    if losses.total():
        conn.execute(SQL["count_losses"], {"losses": json.dumps(losses), "tenant_id": tenant_id})
    return reaped


def _reap(conn: sqlite3.Connection, now: int, lost: sqlite3.Row, loss: Loss, tenant_id: str, reaper: str) -> Reaped:
    """Take one job away from its lost lease."""
    claim = Claim(lost["job_id"], tenant_id, lost["worker_id"], lost["attempt"], lost["version"], lost["cancel_note"])
    started = bool(lost["started"])
    end = settle_lost(
        worker_id=claim.worker_id,
        started=started,
        retry_count=lost["retry_count"],
        max_retries=lost["max_retries"],
        lost_starts=lost["lost_starts"],
        suspicion=lost["suspicion"],
        loss=loss,
        hung=bool(lost["hung"]),
        late=bool(lost["late"]),
        cancel_requested=lost["cancel_requested_at"] is not None,
    )
    conn.execute(SQL["drop_claim"], {"job_id": claim.job_id})
    note = _note(claim, end, reaper, hung=bool(lost["hung"]), now=now if end.suspicion > lost["suspicion"] else None)
    conn.execute(SQL["settle_many"], settle_values(claim, end, now, note, span(end.delay)))
    if started:
        if lost["expires_at"] <= now:
            why = (end.error or "its lease ran out", end.error_kind or "lease_lost")
        else:
            why = ("it did not stop when it was cancelled", "cancelled")
        run = (claim.job_id, claim.attempt, claim.worker_id, lost["claimed_at"], end.status.value, *why)
        write_rows(conn, "add_run", [run], now=now)
    return Reaped(UUID(claim.job_id), end.status, claim.worker_id, lost["kind"])


def _note(claim: Claim, end: Settlement, reaper: str, *, hung: bool, now: int | None) -> str:
    if end.status is Status.CANCELLED:
        return claim.cancel_note or "{}"
    said: dict[str, Any] = {
        "reason": "timeout" if hung else "lease_expired",
        "lost_worker": claim.worker_id,
        "actor": f"worker:{reaper}",
        "via": "reaper",
        "retry_count": end.retry_count,
    }
    if now is not None:  # it is one more time suspect
        said |= {"suspicion": end.suspicion, "next_retry_at": CODEC.time(now + span(end.delay)).isoformat()}
    if end.error is not None:
        said |= {"error": end.error, "error_kind": end.error_kind}
    return json.dumps(said)
