"""Enqueueing in the transaction of a caller's connection: psycopg 3 or asyncpg, also beneath SQLAlchemy."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID
from weakref import WeakSet

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from perdure.model.errors import OtherDatabase, PerdureError
from perdure.model.jobs import Enqueued, NewJob, lane_of
from perdure.store.group_commit.limits import chunks
from perdure.store.postgres.engine.hot_writer import Base
from perdure.store.postgres.jobs.enqueue import acknowledge
from perdure.store.tx_enqueue.caller_connection import (
    ConnectionSteps,
    PreparedEnqueue,
    Rows,
    Steps,
    all_or_none,
    closed,
    is_a,
    no_transaction,
    not_ours,
    other_database,
)

_IDLE = 0  # psycopg.pq.TransactionStatus


@dataclass(frozen=True, slots=True)
class Place:
    """A database, wherever one connects to it from. The server is None where this user may not ask for it."""

    name: str
    oid: str
    server: str | None


class Foreign(Base):
    """See `protocol.JobStore`."""

    _where: str
    _place: Place | None
    _trusted: WeakSet[Any]
    """Connections that are known to lead to this very database."""

    async def prepare_enqueue(self, tx: object, jobs: Sequence[NewJob]) -> PreparedEnqueue:
        """See `protocol.JobStore.prepare_enqueue`."""
        if self._place is None:
            self._place = await self._find_place()
        here = self._place
        return PreparedEnqueue(tx, lambda beneath: self._connection_steps(beneath, jobs, here))

    async def _find_place(self) -> Place:
        row = await self._db.row("this_database")
        assert row is not None
        server = await self._db.row("this_server") if row["has_function_privilege"] else None
        return Place(row["datname"], row["oid"], None if server is None else server["system_identifier"])

    def _connection_steps(self, beneath: Any, jobs: Sequence[NewJob], here: Place) -> ConnectionSteps:
        if is_a(beneath, "psycopg", "Cursor", "AsyncCursor", "Transaction", "AsyncTransaction"):
            beneath = beneath.connection
        if is_a(beneath, "psycopg", "Connection", "AsyncConnection"):
            if beneath.autocommit and beneath.info.transaction_status == _IDLE:
                raise no_transaction(
                    "this connection is in autocommit mode: open a block with connection.transaction()"
                )
            steps = self._steps(jobs, beneath, here, _percent)
            if is_a(beneath, "psycopg", "Connection"):
                return ConnectionSteps(steps, ask=_psycopg(beneath), cancel=beneath.cancel)
            return ConnectionSteps(steps, ask_async=_psycopg_async(beneath))
        if isinstance(beneath, asyncpg.Connection | PoolConnectionProxy):
            # The pool hands out a new proxy each time; the connection in it stays. A proxy that was given back has none.
            itself = getattr(beneath, "_con", beneath)
            if itself is None or itself.is_closed():
                raise closed(beneath)
            if not itself.is_in_transaction():
                raise no_transaction("open one: async with connection.transaction(): ...")
            return ConnectionSteps(self._steps(jobs, itself, here, _dollar), ask_async=_asyncpg(beneath))
        raise not_ours(beneath, self._where)

    def _steps(
        self, jobs: Sequence[NewJob], connection: Any, here: Place, spelled: Callable[[str], str]
    ) -> Steps[list[Enqueued]]:
        """What is done on the connection, the statements spelled for its driver."""
        sql = {name: spelled(self._db.statements[name]) for name in _STATEMENTS}
        if connection not in self._trusted:
            try:
                yield from _check_place(sql, here, self._where)
            except OtherDatabase:
                self._place = None  # perhaps it is the App's database that has moved: the next call looks again
                raise
            self._trusted.add(connection)
        steps = _enqueue(sql, jobs, self.tenant)
        # One job is one statement, whole by itself: hundreds of savepoints in a transaction slow down the whole server.
        return (yield from (all_or_none(steps) if len(jobs) > 1 else steps))


_STATEMENTS = ("enqueue_joined", "find_joined", "this_database", "this_server")


def _check_place(sql: dict[str, str], here: Place, where: str) -> Steps[None]:
    """Raise OtherDatabase unless the connection leads to the database the App is in."""
    [(name, oid, may_ask)] = yield sql["this_database"], ()
    server = None
    if may_ask and here.server is not None:
        [(server,)] = yield sql["this_server"], ()
    if (name, oid) != (here.name, here.oid) or (server is not None and server != here.server):
        raise other_database(
            f"a connection to PostgreSQL database '{name}'" + (" of another server" if name == here.name else ""), where
        )


def _enqueue(sql: dict[str, str], jobs: Sequence[NewJob], tenant: str) -> Steps[list[Enqueued]]:
    results: dict[UUID, Enqueued] = {}
    for chunk in chunks(jobs):
        missing = chunk
        while missing:
            rows = yield sql["enqueue_joined"], (_as_json(missing, tenant),)
            for (id,) in rows:
                results[UUID(id)] = Enqueued(UUID(id), created=True)
            missing = [job for job in missing if job.id not in results]
            if missing:
                found = yield sql["find_joined"], (_as_json(missing, tenant),)
                by_id = {job.id: job for job in missing}
                for meant, id, other in found:
                    job = by_id[UUID(meant)]
                    result = acknowledge(job, UUID(id), other)
                    if isinstance(result, PerdureError):
                        raise result
                    results[job.id] = result
                # One that met nothing after all (what it met was pruned between the two statements) is inserted again.
                missing = [job for job in missing if job.id not in results]
    return [results[job.id] for job in jobs]


def _as_json(jobs: Sequence[NewJob], tenant: str) -> str:
    """The jobs as one parameter, in ASCII: the connection may have any encoding."""
    return json.dumps(
        [
            {
                "id": str(job.id),
                "kind": job.kind,
                "queue": job.queue,
                "lane": lane_of(tenant, job.queue),
                "goal": job.goal,
                "payload": job.payload,
                "payload_hash": job.payload_hash,
                "priority": job.priority,
                "max_retries": job.max_retries,
                "run_at": _time(job.run_at),
                "delay": job.delay,
                "deadline": _time(job.deadline),
                "key": job.idempotency_key,
                "origin_id": None if job.origin_id is None else str(job.origin_id),
                "origin_kind": job.origin_kind,
                "note": job.note,
                "tenant": tenant,
            }
            for job in jobs
        ]
    )


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


# -- the drivers -----------------------------------------------------------------------------------------------------------


def _dollar(sql: str) -> str:
    return sql


def _percent(sql: str) -> str:
    return sql.replace("$1", "%s")


def _psycopg(connection: Any) -> Callable[[str, Any], Rows]:
    tuples = sys.modules["psycopg.rows"].tuple_row  # whatever rows the caller likes, we read tuples
    kind = sys.modules["psycopg"].Cursor

    def ask(sql: str, parameters: Any) -> Rows:
        with kind(connection, row_factory=tuples) as cursor:
            cursor.execute(sql, parameters)
            rows: Rows = () if parameters is None else cursor.fetchall()
            return rows

    return ask


def _psycopg_async(connection: Any) -> Callable[[str, Any], Any]:
    tuples = sys.modules["psycopg.rows"].tuple_row
    kind = sys.modules["psycopg"].AsyncCursor

    async def ask(sql: str, parameters: Any) -> Rows:
        async with kind(connection, row_factory=tuples) as cursor:
            await cursor.execute(sql, parameters)
            rows: Rows = () if parameters is None else await cursor.fetchall()
            return rows

    return ask


def _asyncpg(connection: Any) -> Callable[[str, Any], Any]:
    async def ask(sql: str, parameters: Any) -> Rows:
        if parameters is None:
            await connection.execute(sql)
            return ()
        rows: Rows = await connection.fetch(sql, *parameters)
        return rows

    return ask
