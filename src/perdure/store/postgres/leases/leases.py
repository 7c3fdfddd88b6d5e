"""Taking jobs, keeping them, and taking them away from workers that are gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import structlog

from perdure.model.errors import JobNotFound
from perdure.model.jobs import MAX_LOST_STARTS, ClaimedJob, Lease, Reaped, Wait, lane_of
from perdure.model.states import Status
from perdure.store.errors import lease_lost
from perdure.store.group_commit.retry import CLASHES, Trouble
from perdure.store.postgres.engine.codec import SPELLING
from perdure.store.postgres.engine.connections import WRITE_TIMEOUT, Backoff, HotConnection
from perdure.store.postgres.engine.driver_errors import DAMAGED, translated, trouble_of
from perdure.store.postgres.engine.hot_writer import Base
from perdure.store.postgres.engine.transactions import Tx, is_held
from perdure.store.postgres.engine.vacuum import Vacuum
from perdure.store.rows import Row, claimed_job_of, wait_of

HOT_STATEMENTS = ("claim", "claim_front", "push_back", "next_due", "heartbeat", "still_held")

LOCKED_PAUSES = (0.005, 0.02, 0.05, 0.1)
"""Seconds between attempts to renew a lease whose row is locked: our own writes hold theirs for milliseconds."""
SHORTEST_PATIENCE = 2.0
"""Seconds an answer may take however short the leases are."""

log = structlog.get_logger("perdure.store")


class Leases(Base):
    """See `protocol.LeaseStore`."""

    _keeper: HotConnection  # claims and heartbeats
    _vacuum: Vacuum
    _patience: float = WRITE_TIMEOUT  # of the keeper: well under the lease, so that a silent connection costs none

    async def claim(self, *, worker_id: str, queue: str, limit: int, ttl: float) -> list[ClaimedJob]:
        """See `protocol.LeaseStore.claim`."""
        if limit <= 0:
            return []
        self._patience = _patience(ttl)
        lane, duration = lane_of(self.tenant, queue), timedelta(seconds=ttl)
        note = json.dumps({"worker": worker_id})
        try:
            rows = await self._keep("claim", lane, limit, worker_id, duration, self.tenant, None, note)
        except DAMAGED:
            rows = await self._claim_singly(lane, limit, worker_id, duration, note)
        if rows:
            self._bell.ring("news")
            self._vacuum.claimed(len(rows))
        return [
            claimed_job_of(row, SPELLING, worker_id=worker_id, expires_at=row["claimed_at"] + duration) for row in rows
        ]

    async def next_due(self, queues: Sequence[str]) -> float | None:
        """See `protocol.LeaseStore.next_due`."""
        rows = await self._keep("next_due", [lane_of(self.tenant, queue) for queue in queues])
        left = rows[0]["seconds"]
        return None if left is None else max(0.0, left)

    async def _claim_singly(self, lane: str, limit: int, worker_id: str, duration: timedelta, note: str) -> list[Row]:
        """One damaged job must not block its lane: find it, put it aside for a while, say so, and claim the others."""
        claimed: list[Row] = []
        for _ in range(2 * limit):
            front = await self._keep("claim_front", lane, self.tenant)
            if not front or len(claimed) == limit:
                break
            job_id = front[0]["job_id"]
            try:
                claimed += await self._keep("claim", lane, 1, worker_id, duration, self.tenant, job_id, note)
            except DAMAGED as error:
                log.error(  # noqa: TRY400  the error says it all
                    "a damaged job cannot be claimed; put aside for 5 minutes", job_id=str(job_id), error=str(error)
                )
                await self._keep("push_back", job_id)
        return claimed

    async def _keep(self, name: str, *arguments: Any) -> list[Row]:
        """A statement of the keeper, repeated if the connection breaks (a claim that was lost is reaped, unstarted, at no
        cost) or if it loses against others."""
        backoff = Backoff()
        clashes = losses = 0
        while True:
            try:
                return await self._keeper.fetch(name, *arguments, timeout=self._patience)
            except DAMAGED:
                raise
            except Exception as error:
                trouble = trouble_of(error)
                lost = trouble in (Trouble.LOST, Trouble.AWAY)
                if lost and (losses == 0 or not backoff.over):  # a silent connection may have taken all patience
                    losses += 1
                    await backoff.pause()
                elif trouble is Trouble.CLASH and clashes < CLASHES:
                    clashes += 1
                    await asyncio.sleep(0.002 * 2**clashes)
                elif trouble is Trouble.BLOCKED:  # wait for it elsewhere, where nobody else must wait with us
                    return await self._db.rows(name, *arguments)
                else:
                    refusal = translated(error)
                    if refusal is error:
                        raise
                    raise refusal from error

    async def heartbeat(self, leases: Sequence[Lease], *, ttl: float, started: Sequence[UUID] = ()) -> set[UUID]:
        """See `protocol.LeaseStore.heartbeat`."""
        if not leases:
            return set()
        self._patience = _patience(ttl)
        left = sorted(leases, key=lambda lease: lease.job_id.int)
        duration, begun = timedelta(seconds=ttl), list(started)
        kept: set[UUID] = set()
        for pause in (*LOCKED_PAUSES, 0.0):
            rows = await self._keep("heartbeat", *_columns(left), duration, begun, self.tenant)
            kept |= {row["job_id"] for row in rows}
            left = [lease for lease in left if lease.job_id not in kept]
            if left:  # gone, or only locked?
                rows = await self._keep("still_held", *_columns(left), self.tenant)
                held = {row["job_id"] for row in rows}
                left = [lease for lease in left if lease.job_id in held]
            if not left:
                return kept
            await asyncio.sleep(pause)
        return kept | {lease.job_id for lease in left}  # a stranger's lock, which is no reason to give a job up

    async def read_wait(self, lease: Lease, key: str) -> Wait | None:
        """See `protocol.LeaseStore.read_wait`."""
        row = await self._db.row("read_wait", lease.job_id, key, self.tenant)
        return None if row is None else wait_of(row, SPELLING)

    async def set_waiting(self, lease: Lease, waiting: bool) -> None:
        """See `protocol.LeaseStore.set_waiting`. Asking for what is already so changes nothing."""
        wanted = Status.WAITING if waiting else Status.RUNNING

        async def work(tx: Tx) -> None:
            try:
                job = await tx.lock(lease.job_id)
            except JobNotFound:
                raise lease_lost(lease) from None
            if job.claim is None or not is_held(lease, job.claim, tx.tenant):
                raise lease_lost(lease)
            if job.status is not wanted:
                await tx.rows("set_waiting", lease.job_id, lease.attempt, lease.worker_id, waiting, self.tenant)

        await self._db.transact(work)
        self._bell.ring("news")

    async def cancel_requests(self, worker_id: str) -> list[Lease]:
        """See `protocol.LeaseStore.cancel_requests`."""
        rows = await self._db.rows("cancel_requests", worker_id, self.tenant)
        return [Lease(row["job_id"], row["attempt"], worker_id) for row in rows]

    async def reap(self, *, worker_id: str, limit: int = 100) -> list[Reaped]:
        """See `protocol.LeaseStore.reap`."""
        arguments = (worker_id, limit, MAX_LOST_STARTS, self.tenant)
        rows = await self._db.sweep("reap", "reapable", *arguments, limit=limit)
        if rows:
            self._bell.ring("work", "news")
        return [Reaped(row["id"], Status(row["status"]), row["worker_id"], row["kind"]) for row in rows]


def _patience(ttl: float) -> float:
    """How long the keeper waits for an answer while leases of `ttl` seconds depend on it."""
    return max(SHORTEST_PATIENCE, min(WRITE_TIMEOUT, ttl / 3))


def _columns(leases: Sequence[Lease]) -> tuple[list[UUID], list[int], list[str]]:
    return [x.job_id for x in leases], [x.attempt for x in leases], [x.worker_id for x in leases]
