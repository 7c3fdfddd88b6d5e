"""The life of a lease: claim, heartbeat, waiting, and what becomes of leases and deadlines that run out."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

import structlog

from perdure.model.errors import IllegalTransition, InvalidInput
from perdure.model.jobs import MAX_LOST_STARTS, ClaimedJob, Lease, Reaped, Wait, lane_of
from perdure.model.states import Status
from perdure.store.errors import lease_lost
from perdure.store.rows import claimed_job_of, wait_of
from perdure.store.sqlite.approvals.approvals import expire_approval
from perdure.store.sqlite.engine.base import SQL, Base, singly
from perdure.store.sqlite.engine.bulk import write_rows
from perdure.store.sqlite.engine.database import CODEC, span
from perdure.store.sqlite.engine.writer import NEWS, NOTHING, WORK
from perdure.store.sqlite.leases.lease_check import held_claim, holds, live_claims

_CANCEL_GRACE = 10_000_000  # microseconds a holder has to stop by itself
_ASIDE = 300_000_000  # microseconds
_ID, _PAYLOAD = 0, 5
"""Places in a row of `claim`, which is one of `claimed_job_of`."""

log = structlog.get_logger("perdure.store")


class Leases(Base):
    """See `protocol.LeaseStore`."""

    async def claim(self, *, worker_id: str, queue: str, limit: int, ttl: float) -> list[ClaimedJob]:
        """See `protocol.LeaseStore.claim`."""
        if limit <= 0:
            return []
        lane, lasts = lane_of(self.tenant_id, queue), span(ttl)

        def some(conn: sqlite3.Connection, now: int) -> list[_Taken]:
            return self._claim(conn, now, lane, worker_id, lasts, self._writer.share(limit))

        def each(conn: sqlite3.Connection, now: int) -> list[_Taken]:
            """One damaged job must not block its lane: find it, put it aside for a while, say so, and claim the others."""
            claimed: list[_Taken] = []
            for _ in range(2 * limit):
                try:
                    with singly(conn):
                        first = self._claim(conn, now, lane, worker_id, lasts, 1)
                except _Damaged as error:
                    said = {"job_id": error.job_id, "error": str(error)}
                    log.error("a damaged job cannot be claimed; put aside for 5 minutes", **said)  # noqa: TRY400
                    conn.execute(SQL["push_back"], (now + _ASIDE, error.job_id))
                    continue
                claimed += first
                if not first or len(claimed) == limit:
                    break
            return claimed

        try:
            claimed = await self._write(some, NEWS)
        except (IllegalTransition, InvalidInput):
            claimed = await self._write(each, NEWS)
        jobs: list[ClaimedJob] = []
        for taken in claimed:
            expires_at = CODEC.time(taken.at) + timedelta(seconds=ttl)
            for row in json.loads(taken.jobs):
                if row[_PAYLOAD] is None:
                    row[_PAYLOAD] = taken.payloads[row[_ID]]
                jobs.append(claimed_job_of(row, CODEC, worker_id=worker_id, expires_at=expires_at))
        return jobs

    def _claim(
        self, conn: sqlite3.Connection, now: int, lane: str, worker_id: str, lasts: int, limit: int
    ) -> list[_Taken]:
        """Lease the first due jobs of a lane; rows of the queue whose job cannot start are taken out of it and forgotten.

        Raises _Damaged.
        """
        where = {"tenant": self.tenant_id, "lane": lane, "now": now, "limit": limit}
        while True:
            found, ids, jobs, large, strays = conn.execute(SQL["claim"], where).fetchone()
            if found == "[]":
                if strays != "[]":
                    raise _Damaged(strays, "it is another tenant's, in this lane")
                return []
            if conn.execute(SQL["claim_take"], (found,)).rowcount == 0:  # JSON cannot spell an id as it is
                raise _Damaged(found, "its row in job_queue cannot be deleted")
            if ids != "[]":
                break
        try:
            conn.execute(SQL["claim_move"], (now, now, json.dumps({"worker": worker_id}), ids))
            conn.execute(SQL["claim_lease"], (worker_id, lasts, now, now + lasts, ids))
        except sqlite3.IntegrityError as error:
            raise _Damaged(ids, str(error)) from error
        payloads = dict(conn.execute(SQL["large_payloads"], (large,)).fetchall()) if large != "[]" else {}
        return [_Taken(jobs, payloads, now)]

    async def next_due(self, queues: Sequence[str]) -> float | None:
        """See `protocol.LeaseStore.next_due`."""
        rows = await self._rows("next_due", (json.dumps([lane_of(self.tenant_id, queue) for queue in queues]),))
        left = rows[0]["left"]
        return None if left is None else max(0.0, left / 1_000_000)

    async def heartbeat(self, leases: Sequence[Lease], *, ttl: float, started: Sequence[UUID] = ()) -> set[UUID]:
        """See `protocol.LeaseStore.heartbeat`."""
        lasts = span(ttl)
        begun = set(started)

        def one(conn: sqlite3.Connection, now: int) -> set[UUID]:
            claims = live_claims(conn, now, self.tenant_id, [str(lease.job_id) for lease in leases])
            live = [lease for lease in leases if holds(claims.get(str(lease.job_id)), lease)]
            renewed = [(str(lease.job_id), lease.job_id in begun) for lease in live]
            write_rows(conn, "heartbeat", renewed, lasts, now + lasts)
            return {lease.job_id for lease in live}

        return await self._write(one, NOTHING) if leases else set()

    async def read_wait(self, lease: Lease, key: str) -> Wait | None:
        """See `protocol.LeaseStore.read_wait`."""
        row = await self._row("read_wait", {"job_id": str(lease.job_id), "key": key, "tenant": self.tenant_id})
        return None if row is None else wait_of(row, CODEC)

    async def set_waiting(self, lease: Lease, waiting: bool) -> None:
        """See `protocol.LeaseStore.set_waiting`."""
        wanted = Status.WAITING if waiting else Status.RUNNING

        def one(conn: sqlite3.Connection, now: int) -> None:
            claim = held_claim(conn, now, self.tenant_id, lease)
            if claim is None:
                raise lease_lost(lease)
            id = str(lease.job_id)
            if conn.execute(SQL["lock_job"], (id, self.tenant_id)).fetchone()["status"] == wanted:
                return
            version = claim.version + 1
            note = json.dumps({"worker": lease.worker_id})
            conn.execute(SQL["append_leased"], (version, id))
            conn.execute(SQL["set_waiting"], (wanted, version, now, note, id))

        await self._write(one, NEWS)

    async def cancel_requests(self, worker_id: str) -> list[Lease]:
        """See `protocol.LeaseStore.cancel_requests`."""
        rows = await self._rows("cancel_requests", (worker_id, self.tenant_id))
        return [Lease(UUID(row["job_id"]), row["attempt"], worker_id) for row in rows]

    async def reap(self, *, worker_id: str, limit: int = 100) -> list[Reaped]:
        """See `protocol.LeaseStore.reap`."""

        def one(conn: sqlite3.Connection, now: int) -> list[Reaped]:
            lost = conn.execute(SQL["reap"], (now, now - _CANCEL_GRACE, self.tenant_id, limit)).fetchall()
            reaped: list[Reaped] = []
            for row in lost:
                try:
                    with singly(conn):
                        reaped.append(_reap(conn, now, row, worker_id))
                except sqlite3.IntegrityError as error:  # it must not keep the others
                    log.error("a damaged job cannot be reaped", job_id=row["job_id"], error=str(error))  # noqa: TRY400
            return reaped

        return await self._write(one, WORK | NEWS)

    async def expire(self, *, limit: int = 100) -> int:
        """See `protocol.LeaseStore.expire`."""

        def one(conn: sqlite3.Connection, now: int) -> int:
            settled = _expire_jobs(conn, {"now": now, "tenant": self.tenant_id, "limit": limit, "id": None})
            for row in conn.execute(SQL["due_approvals"], (now, self.tenant_id, limit)).fetchall():
                try:
                    with singly(conn):
                        expire_approval(conn, now, row, self.tenant_id)
                except sqlite3.IntegrityError as error:
                    log.error("an approval of a damaged job cannot expire", approval_id=row["id"], error=str(error))  # noqa: TRY400
                else:
                    settled += 1
            return settled

        return await self._write(one, WORK | NEWS)


class _Taken(NamedTuple):
    """Jobs of one claim, as JSON: they are read by the event loop, whose time is less precious than the writer's."""

    jobs: str
    payloads: dict[str, str]
    """The large ones, by job id."""
    at: int


class _Damaged(sqlite3.IntegrityError):
    """One of these jobs cannot be claimed."""

    def __init__(self, ids: str, why: str) -> None:
        super().__init__(why)
        self.job_id: str = json.loads(ids)[0]
        """The first one; where only one was asked for, it is the one."""


def _expire_jobs(conn: sqlite3.Connection, where: dict[str, Any]) -> int:
    """Fail what is past its deadline; a damaged job does not keep the others from it."""
    try:
        with singly(conn):
            return conn.execute(SQL["expire_jobs"], where).rowcount
    except sqlite3.IntegrityError:
        settled = 0
    for late in conn.execute(SQL["late_jobs"], where).fetchall():
        try:
            with singly(conn):
                settled += conn.execute(SQL["expire_jobs"], where | {"id": late["job_id"]}).rowcount
        except sqlite3.IntegrityError as error:
            log.error("the deadline of a damaged job cannot be settled", job_id=late["job_id"], error=str(error))  # noqa: TRY400
    return settled


def _reap(conn: sqlite3.Connection, now: int, lost: sqlite3.Row, reaper: str) -> Reaped:
    """Take one job away from its lost lease."""
    id, worker, started = lost["job_id"], lost["worker_id"], bool(lost["started"])
    if lost["cancel_requested_at"] is not None:
        status = Status.CANCELLED
    elif lost["retry_count"] >= lost["max_retries"] if started else lost["lost_starts"] + 1 >= MAX_LOST_STARTS:
        status = Status.DEADLETTER
    else:
        status = Status.RETRY
    retries = lost["retry_count"] + (status is Status.RETRY and started)
    error = f"the lease of worker {worker} ran out" if status is Status.DEADLETTER else None
    if status is Status.CANCELLED:
        note = lost["cancel_note"] or "{}"
    else:
        said: dict[str, Any] = {
            "reason": "lease_expired",
            "lost_worker": worker,
            "actor": f"worker:{reaper}",
            "via": "reaper",
            "retry_count": retries,
        }
        note = json.dumps(said if error is None else said | {"error": error, "error_kind": "lease_lost"})
    conn.execute(SQL["drop_claim"], (id,))
    settled = {
        "id": id,
        "now": now,
        "status": status,
        "version": lost["version"] + 1,
        "retry_count": retries,
        "lost_starts": lost["lost_starts"] + (not started),  # see the twin
        "next_retry_at": now if status is Status.RETRY else None,
        "finished_at": None if status is Status.RETRY else now,
        "error": error,
        "error_kind": error and "lease_lost",
        "note": note,
    }
    conn.execute(SQL["settle_many"], settled)
    if started:
        if lost["expires_at"] <= now:
            why = (error or "its lease ran out", "lease_lost")
        else:
            why = ("it did not stop when it was cancelled", "cancelled")
        conn.execute(SQL["add_run"], (id, lost["attempt"], worker, lost["claimed_at"], now, status, *why))
    return Reaped(UUID(id), status, worker, lost["kind"])
