"""Claiming: the first due jobs of a lane get a lease."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

import structlog

from perdure.model.account_choice import TaskGroup, TaskKind
from perdure.model.agents import KEY_PREFIX
from perdure.model.errors import IllegalTransition, InvalidInput
from perdure.model.jobs import ClaimedJob, lane_of
from perdure.store.protocol.leases import NO_LIMITS, KindLimit, task_kinds
from perdure.store.rows import claim_note, claimed_job_of
from perdure.store.sqlite.engine.batch import NEWS
from perdure.store.sqlite.engine.codec import CODEC, span
from perdure.store.sqlite.engine.connection import savepoint
from perdure.store.sqlite.engine.engine import Engine
from perdure.store.sqlite.engine.statements import SQL
from perdure.store.sqlite.leases.limited import Fitting, Limits, release_key, take_or_hold
from perdure.store.sqlite.leases.tasks import choose_tasks, startable
from perdure.store.sqlite.signals.agent_signals import give_to_claimed

ROUNDS = 10
"""How often a claim looks on, after it has found jobs whose concurrency keys are full."""
_SET_ASIDE = 300_000_000  # microseconds
_ID, _KIND, _PAYLOAD, _RETRY_COUNT, _MAX_RETRIES = 0, 2, 5, 8, 9
"""Places in a row of `claim`, which is one of `claimed_job_of`."""

NO_TASKS: Mapping[str, TaskKind] = MappingProxyType({})

log = structlog.get_logger("perdure.store")


class Claiming(NamedTuple):
    """Who claims, where, what, and for how long (microseconds)."""

    tenant_id: str
    lane: str
    kinds: Mapping[str, int]
    worker_id: str
    note: str
    ttl: int
    limits: Limits
    tasks: Mapping[str, TaskKind] = NO_TASKS
    """Those of the kinds that need an account."""
    groups: Sequence[TaskGroup] = ()
    """Of the tasks, those of which one may be able to start."""

    @property
    def others(self) -> Mapping[str, int]:
        """The kinds that are no tasks."""
        return {kind: most for kind, most in self.kinds.items() if kind not in self.tasks} if self.tasks else self.kinds


class Claimed(NamedTuple):
    """The jobs of one claim, as JSON: they are read by the event loop, whose time is less scarce than the writer's."""

    jobs: str
    payloads: dict[str, str]
    """The large ones, by job id."""
    at: int
    number: int
    accounts: Mapping[str, str | None] = {}
    """Of tasks, whose slot they have."""


class DamagedJob(sqlite3.IntegrityError):
    """One of these jobs cannot be claimed."""

    def __init__(self, ids: str, why: str) -> None:
        super().__init__(why)
        self.job_id: str = json.loads(ids)[0]
        """The first one; where only one was asked for, it is the one."""


async def claim(
    engine: Engine,
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
    lane, note = lane_of(tenant_id, queue), claim_note(worker_id, version)
    who = Claiming(tenant_id, lane, kinds, worker_id, note, span(ttl), _limits_of(limits))
    if tasks := task_kinds(kinds, limits):
        groups = [group for group, _ in await startable(engine, tenant_id, lane, tasks)]
        who = who._replace(tasks=tasks, groups=groups)
        if not groups and not who.others:
            return []
    try:
        claimed = await engine.write(lambda conn, now: [*_claim(conn, now, who, engine.share(limit))], NEWS)
    except (IllegalTransition, InvalidInput):
        claimed = await engine.write(lambda conn, now: _claim_singly(conn, now, who, limit), NEWS)
    jobs: list[ClaimedJob] = []
    for some in claimed:
        expires_at = CODEC.time(some.at) + timedelta(seconds=ttl)
        for row in json.loads(some.jobs):
            if row[_PAYLOAD] is None:
                row[_PAYLOAD] = some.payloads[row[_ID]]
            if row[_MAX_RETRIES] is None:
                row[_MAX_RETRIES] = max(kinds[row[_KIND]], row[_RETRY_COUNT])
            try:
                job = claimed_job_of(row, CODEC, worker_id=worker_id, expires_at=expires_at)
                jobs.append(job._replace(account=some.accounts.get(row[_ID])) if some.accounts else job)
            except ValueError as error:  # its id: it stays leased, and no worker can run it
                log.error("a job that cannot be read is put aside", job_id=row[_ID], error=str(error))  # noqa: TRY400  its text says it all
    return jobs


def _limits_of(limits: Mapping[str, KindLimit]) -> Limits:
    keys = {kind: limit.key for kind, limit in limits.items() if limit.key is not None}
    return Limits(keys, {kind: limit.max for kind, limit in limits.items() if limit.max is not None})


def _claim(conn: sqlite3.Connection, now: int, who: Claiming, limit: int, *, alone: bool = False) -> list[Claimed]:
    """Lease the first due jobs of a lane; queue rows of jobs that cannot start are deleted. Those whose concurrency key is full
    are held, and it looks on.

    Raises DamagedJob.
    """
    claimed = _claim_tasks(conn, now, who, limit) if who.groups else []
    limit -= sum(one.number for one in claimed)
    if limit <= 0 or not who.others:
        return claimed
    for _ in range(ROUNDS):
        some, limited = _claim_found(conn, now, who, limit)
        claimed += some
        limit -= sum(one.number for one in some)
        if limited == "[]":
            break
        some = _claim_limited(conn, now, who, limited, limit, alone=alone)
        claimed += some
        limit -= sum(one.number for one in some)
        if limit <= 0:
            break
    return claimed


def _claim_tasks(conn: sqlite3.Connection, now: int, who: Claiming, limit: int) -> list[Claimed]:
    """Lease tasks that get an account and, where they have a concurrency key, a slot of it as well. Raises DamagedJob."""
    plain, keyed, given = choose_tasks(
        conn,
        now,
        tenant_id=who.tenant_id,
        lane=who.lane,
        tasks=who.tasks,
        groups=who.groups,
        others=[*who.others],
        limit=limit,
    )
    claimed = _start_found(conn, now, who, plain, Fitting(plain, None, None)) if plain else []
    for id in keyed:
        claimed += _claim_limited(conn, now, who, json.dumps([id]), 1, alone=True)
    taken = [some._replace(accounts=given) for some in claimed]
    started = {row[_ID]: given[row[_ID]] for some in taken for row in json.loads(some.jobs)}
    conn.execute(SQL["give_accounts"], {"accounts": json.dumps(started)})
    return taken


def _start_found(
    conn: sqlite3.Connection, now: int, who: Claiming, found: Sequence[str], some: Fitting
) -> list[Claimed]:
    values = {"ids": json.dumps(found), "now": now, "slot": some.slot}
    ids, jobs, large = conn.execute(SQL["limited_rows"], values).fetchone()
    conn.execute(SQL["claim_take"], {"ids": values["ids"]})
    return [] if ids == "[]" else [_start(conn, now, who, ids, jobs, large, json.dumps(who.kinds), some)]


def _claim_limited(
    conn: sqlite3.Connection, now: int, who: Claiming, found: str, room: int, *, alone: bool
) -> list[Claimed]:
    """Lease those of the jobs that were found whose concurrency keys have free slots, at most so many. Raises DamagedJob."""
    fitting = take_or_hold(
        conn, now, tenant_id=who.tenant_id, lane=who.lane, found=found, limits=who.limits, room=room, alone=alone
    )
    claimed = []
    for some in fitting:
        claimed += _start_found(conn, now, who, some.ids, some)
    if sum(one.number for one in claimed) == room:
        # it could take fewer than the key has slots: other workers may take the next ones
        for key in {some.slot for some in fitting if some.slot is not None}:
            release_key(conn, now, who.tenant_id, key)
    return claimed


def _claim_found(conn: sqlite3.Connection, now: int, who: Claiming, limit: int) -> tuple[list[Claimed], str]:
    """Lease those without a concurrency key, and return the ids of the others that were found on the way. Raises DamagedJob."""
    number, kind, kinds = conn.execute(
        SQL["claim_kinds"], {"lane": who.lane, "kinds": json.dumps([*who.others])}
    ).fetchone()
    values: dict[str, Any] = {
        "tenant_id": who.tenant_id,
        "lane": who.lane,
        "kind": kind if number == 1 else None,
        "kinds": kinds if number > 1 else None,
        "keys": json.dumps(who.limits.keys) if who.limits.keys else None,
        "now": now,
        "limit": limit,
    }
    while True:
        found, ids, jobs, large, others, limited = conn.execute(SQL["claim"], values).fetchone()
        if found == "[]":
            if others != "[]":
                raise DamagedJob(others, "it is another tenant's or of another kind, in this place of the queue")
            return [], limited
        if conn.execute(SQL["claim_take"], {"ids": found}).rowcount == 0:  # JSON cannot hold the id as it is
            raise DamagedJob(found, "its row in job_queue cannot be deleted")
        if ids != "[]":
            break
    retries = None if number == 1 else json.dumps(who.kinds)
    most = who.kinds[kind] if number == 1 else None
    return [_start(conn, now, who, ids, jobs, large, retries, most=most)], limited


def _start(
    conn: sqlite3.Connection,
    now: int,
    who: Claiming,
    ids: str,
    jobs: str,
    large: str,
    retries: str | None,
    some: Fitting | None = None,
    most: int | None = None,
) -> Claimed:
    """Move these jobs and lease them. some: of which key they hold a slot. Raises DamagedJob."""
    try:
        values = {"ids": ids, "now": now, "note": who.note, "most": most, "retries": retries}
        number = conn.execute(SQL["claim_move"], values).rowcount
        lease = {"worker_id": who.worker_id, "ttl": who.ttl, "expires_at": now + who.ttl}
        slot = {"slot": None, "top": None} if some is None else {"slot": some.slot, "top": some.top}
        conn.execute(SQL["claim_lease"], {"ids": ids, "now": now, **lease, **slot})
        if some is not None and some.slot is not None:
            conn.execute(SQL["keep_key"], {"ids": ids, "slot": some.slot})
            if some.slot.startswith(KEY_PREFIX):
                give_to_claimed(conn, now, who.tenant_id, ids)
    except sqlite3.IntegrityError as error:
        raise DamagedJob(ids, str(error)) from error
    payloads = dict(conn.execute(SQL["large_payloads"], {"ids": large}).fetchall()) if large != "[]" else {}
    return Claimed(jobs, payloads, now, number)


def _claim_singly(conn: sqlite3.Connection, now: int, who: Claiming, limit: int) -> list[Claimed]:
    """One damaged job must not block its lane: it is logged and made due later, and the others are claimed."""
    claimed: list[Claimed] = []
    for _ in range(2 * limit):
        try:
            with savepoint(conn):
                first = _claim(conn, now, who, 1, alone=True)
        except DamagedJob as error:
            log.error(  # noqa: TRY400  the error's text says it all
                "a damaged job cannot be claimed; put aside for 5 minutes", job_id=error.job_id, error=str(error)
            )
            conn.execute(SQL["push_back"], {"job_id": error.job_id, "until": now + _SET_ASIDE})
            conn.execute(SQL["free_its_slot"], {"job_id": error.job_id})
            continue
        claimed += first
        if not first or len(claimed) == limit:
            break
    return claimed
