"""What decides whether a job moves, as of one moment."""

from __future__ import annotations

from uuid import UUID

from perdure.model.explanation import EVENTS_LOOKED_AT, MOST_AHEAD, Standing
from perdure.store.errors import job_not_found
from perdure.store.postgres.engine.codec import SPELLING
from perdure.store.postgres.engine.hot_writer import Base
from perdure.store.postgres.engine.transactions import Tx
from perdure.store.postgres.jobs.read import job_of_row
from perdure.store.rows import approval_of, event_of, worker_of


class Explaining(Base):
    """See `protocol.JobStore`."""

    async def standing(self, job_id: UUID) -> Standing:
        """See `protocol.JobStore.standing`."""
        return await self._db.transact(lambda tx: _read(tx, job_id))


async def _read(tx: Tx, job_id: UUID) -> Standing:
    await tx.rows("one_snapshot")
    row = await tx.row("get_job", job_id, tx.tenant)
    if row is None:
        raise job_not_found(job_id)
    job = job_of_row(row)
    now = await tx.row("db_now")
    assert now is not None
    lease = await tx.row("lease_holder", job_id)
    before = max(0, job.version - EVENTS_LOOKED_AT)
    return Standing(
        now=SPELLING.time(now["now"]),
        job=job,
        workers=tuple(worker_of(w, SPELLING) for w in await tx.rows("list_workers", tx.tenant, False)),
        holder=None if lease is None or lease["id"] is None else worker_of(lease, SPELLING),
        claimed_at=None if lease is None else SPELLING.time(lease["claimed_at"]),
        approvals=tuple(approval_of(a, SPELLING) for a in await tx.rows("approvals_awaited", job_id)),
        events=tuple(
            event_of(e, SPELLING)
            for e in await tx.rows("list_events", job_id, before, EVENTS_LOOKED_AT, None, tx.tenant)
        ),
        ahead=await _ahead(tx, job_id),  # last: it bends the planner for the rest of the transaction
    )


async def _ahead(tx: Tx, job_id: UUID) -> int:
    place = await tx.row("place_in_queue", job_id)
    if place is None or not place["due"]:
        return 0
    await tx.rows("by_index")
    higher = list(range(place["priority"] + 1, 10))
    counted = await tx.row("jobs_ahead", place["lane"], higher, place["priority"], place["run_at"], job_id, MOST_AHEAD)
    assert counted is not None
    number: int = counted["n"]
    return min(number, MOST_AHEAD)
