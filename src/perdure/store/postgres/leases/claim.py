"""Taking due jobs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from perdure.model.jobs import ClaimedJob, Lease, lane_of
from perdure.store.postgres.engine.driver_errors import DAMAGED
from perdure.store.postgres.leases.lease_connection import LeaseConnection
from perdure.store.rows import Row, claim_note

log = structlog.get_logger("perdure.store")


async def claim(
    connection: LeaseConnection,
    tenant_id: str,
    *,
    worker_id: str,
    queue: str,
    kinds: Mapping[str, int],
    limit: int,
    ttl: float,
    version: str | None,
) -> list[ClaimedJob]:
    """See `protocol.LeaseStore.claim`."""
    duration = timedelta(seconds=ttl)
    values = {
        "lane": lane_of(tenant_id, queue),
        "queue": queue,
        "kinds": [*kinds],
        "retries": [*kinds.values()],
        "tenant_id": tenant_id,
        "worker_id": worker_id,
        "ttl": duration,
        "note": claim_note(worker_id, version),
    }
    try:
        rows = await connection.rows("claim", only_job=None, limit=limit, **values)
    except DAMAGED:
        rows = await _claim_singly(connection, kinds, limit, values)
    return [] if not rows else claimed_jobs_of(rows, kinds, queue=queue, worker_id=worker_id, duration=duration)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _time(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def _by_place(rows: Sequence[Row]) -> Iterable[Sequence[Any]]:
    """The driver's rows are both: mappings that are read by place."""
    return rows  # type: ignore[return-value]  # see above


def claimed_jobs_of(
    rows: Sequence[Row], kinds: Mapping[str, int], *, queue: str, worker_id: str, duration: timedelta
) -> list[ClaimedJob]:
    """The rows of `claim`, by place: to ask for each column by its name would double what it costs."""
    claimed_at = _time(rows[0]["claimed_at"])
    expires_at = claimed_at + duration
    jobs = []
    for id, attempt, kind, payload, priority, version, more, waited, _ in _by_place(rows):
        lease = Lease(id, attempt, worker_id)
        if more is None:
            its_queue, goal, retry_count, max_retries, lost_starts, suspicion, key, deadline = (
                queue,
                None,
                0,
                kinds[kind],
                0,
                0,
                None,
                None,
            )
        else:
            its_queue, goal, retry_count, max_retries, lost_starts, suspicion, key, deadline = json.loads(more)
        jobs.append(
            ClaimedJob(
                lease,
                kind,
                its_queue,
                goal,
                payload,
                priority,
                version,
                retry_count,
                max_retries,
                lost_starts,
                key,
                None if deadline is None else _time(deadline),
                claimed_at,
                expires_at,
                waited,
                suspicion,
            )
        )
    return jobs


async def _claim_singly(
    connection: LeaseConnection, kinds: Mapping[str, int], limit: int, values: dict[str, object]
) -> list[Row]:
    """One damaged job must not block its lane: find it, put it aside for a while, report it, and claim the others."""
    claimed: list[Row] = []
    for _ in range(2 * limit):
        front = await connection.rows(
            "claim_front", lane=values["lane"], kinds=values["kinds"], tenant_id=values["tenant_id"]
        )
        if not front or len(claimed) == limit:
            break
        job_id, alone = (
            front[0]["job_id"],
            {**values, "kinds": [front[0]["kind"]], "retries": [kinds[front[0]["kind"]]]},
        )
        try:
            await connection.rows("drop_stale_claim", job_id=job_id)
            claimed += await connection.rows("claim", only_job=job_id, limit=1, **alone)
        except DAMAGED as error:
            log.error(  # noqa: TRY400  the error says it all
                "a damaged job cannot be claimed; put aside for 5 minutes", job_id=str(job_id), error=str(error)
            )
            await connection.rows("push_back", job_id=job_id)
    return claimed
