"""Taking due jobs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import structlog

from perdure.model.errors import PerdureError
from perdure.model.jobs import ClaimedJob, Lease, lane_of
from perdure.store.postgres.engine.driver_errors import DAMAGED
from perdure.store.postgres.leases.lease_connection import LeaseConnection
from perdure.store.protocol.leases import NO_LIMITS, KindLimit
from perdure.store.rows import Row, claim_note

ROUNDS = 10
"""How often a claim looks on, after it has found jobs whose concurrency keys are full."""

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
    limits: Mapping[str, KindLimit] = NO_LIMITS,
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
        "keys": [limits[kind].key if kind in limits else None for kind in kinds] if limits else (),
    }
    maxes = [limits[kind].max if kind in limits else None for kind in kinds] if limits else ()
    try:
        rows = await connection.rows("claim", only_job=None, limit=limit, **values)
        if rows and rows[-1]["attempt"] is None:
            rows = await _look_on(connection, rows, limit, values, maxes)
    except DAMAGED:
        rows = await _claim_singly(connection, kinds, limit, values, limits)
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
            its_queue, goal, retry_count, max_retries, lost_starts, suspicion, key, deadline, slot = (
                queue,
                None,
                0,
                kinds[kind],
                0,
                0,
                None,
                None,
                None,
            )
        else:
            its_queue, goal, retry_count, max_retries, lost_starts, suspicion, key, deadline, slot = json.loads(more)
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
                slot,
            )
        )
    return jobs


async def _look_on(
    connection: LeaseConnection,
    rows: Sequence[Row],
    limit: int,
    values: Mapping[str, Any],
    maxes: Sequence[int | None],
    *,
    only_job: UUID | None = None,
) -> list[Row]:
    """The claim found jobs with concurrency keys: those that are let in are leased, the others held, and it claims again while it
    may take more. Each time in a transaction of its own: what is leased already is returned, whatever the next one meets."""
    taken: list[Row] = []
    for number in range(1, ROUNDS + 1):
        taken += [row for row in rows if row["attempt"] is not None]
        found = [row["id"] for row in rows if row["attempt"] is None]
        if not found:
            break
        try:
            taken += await connection.rows(
                "claim_limited",
                ids=found,
                maxes=maxes,
                limit=limit - len(taken),
                alone=only_job is not None,
                **{name: values[name] for name in _OF_LIMITED},
            )
            if number == ROUNDS or len(taken) >= limit:
                break
            rows = await connection.rows("claim", only_job=only_job, limit=limit - len(taken), **values)
        except (*DAMAGED, PerdureError):
            if not taken:
                raise
            break
    return taken


_OF_LIMITED = ("tenant_id", "lane", "queue", "kinds", "retries", "keys", "worker_id", "ttl", "note")


async def _claim_singly(
    connection: LeaseConnection,
    kinds: Mapping[str, int],
    limit: int,
    values: dict[str, Any],
    limits: Mapping[str, KindLimit],
) -> list[Row]:
    """One damaged job must not block its lane: find it, put it aside for a while, report it, and claim the others."""
    claimed: list[Row] = []
    for _ in range(2 * limit):
        front = await connection.rows(
            "claim_front", lane=values["lane"], kinds=values["kinds"], tenant_id=values["tenant_id"]
        )
        if not front or len(claimed) == limit:
            break
        job_id, kind = front[0]["job_id"], front[0]["kind"]
        its = limits.get(kind, KindLimit())
        alone = {**values, "kinds": [kind], "retries": [kinds[kind]], "keys": [its.key]}
        try:
            await connection.rows("drop_stale_claim", job_id=job_id)
            rows = await connection.rows("claim", only_job=job_id, limit=1, **alone)
            if rows and rows[-1]["attempt"] is None:
                rows = await _look_on(connection, rows, 1, alone, [its.max], only_job=job_id)
            claimed += rows
        except DAMAGED as error:
            log.error(  # noqa: TRY400  the error says it all
                "a damaged job cannot be claimed; put aside for 5 minutes", job_id=str(job_id), error=str(error)
            )
            await connection.rows("push_back", job_id=job_id)
    return claimed
