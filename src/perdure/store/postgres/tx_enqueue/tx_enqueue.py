"""Enqueueing in the transaction of a caller's connection: psycopg 3 or asyncpg, also beneath SQLAlchemy."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID
from weakref import WeakSet

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from perdure.model.errors import OtherDatabase, PerdureError
from perdure.model.events import NewEvent
from perdure.model.jobs import Enqueued, NewJob
from perdure.store.errors import held_key, idempotency_conflict
from perdure.store.group_commit.limits import chunks
from perdure.store.postgres.engine.database import Database
from perdure.store.postgres.engine.statements import SQL, STATEMENTS
from perdure.store.postgres.jobs.enqueue_values import apart, jobs_as_json
from perdure.store.statements import Statement, compiled
from perdure.store.tx_enqueue.caller_connection import (
    ConnectionSteps,
    PreparedEnqueue,
    Request,
    Rows,
    Steps,
    all_or_none,
    closed,
    is_a,
    no_transaction,
    not_ours,
    other_database,
)

FirstEvents: TypeAlias = Mapping[UUID, Sequence[NewEvent]]
"""What the logs of jobs begin with, by job."""
_IDLE = 0  # psycopg.pq.TransactionStatus


@dataclass(frozen=True, slots=True)
class Place:
    """A database, the same from all machines. The server is None where this user may not ask for it."""

    name: str
    oid: str
    server: str | None


class TxEnqueue:
    """Enqueues in transactions of callers' connections, for all tenants of an engine."""

    def __init__(self, database: Database, where: str) -> None:
        self._database = database
        self._where = where
        self.place: Place | None = None
        """Where the engine's own connections lead, once it was asked."""
        self._trusted: WeakSet[Any] = WeakSet()  # connections that are known to lead there

    async def prepare(self, tx: object, jobs: Sequence[NewJob], first: FirstEvents, tenant_id: str) -> PreparedEnqueue:
        """See `protocol.JobStore.prepare_enqueue`."""
        if self.place is None:
            self.place = await self.find_place()
        here = self.place
        return PreparedEnqueue(tx, lambda beneath: self._connection_steps(beneath, jobs, first, tenant_id, here))

    async def find_place(self) -> Place:
        """Ask where the engine's own connections lead."""
        row = await self._database.row("this_database")
        assert row is not None
        server = await self._database.row("this_server") if row["has_function_privilege"] else None
        return Place(row["datname"], row["oid"], None if server is None else server["system_identifier"])

    def _connection_steps(
        self, beneath: Any, jobs: Sequence[NewJob], first: FirstEvents, tenant_id: str, here: Place
    ) -> ConnectionSteps:
        if is_a(beneath, "psycopg", "Cursor", "AsyncCursor", "Transaction", "AsyncTransaction"):
            beneath = beneath.connection
        if is_a(beneath, "psycopg", "Connection", "AsyncConnection"):
            if beneath.autocommit and beneath.info.transaction_status == _IDLE:
                raise no_transaction(
                    "this connection is in autocommit mode: open a block with connection.transaction()"
                )
            steps = self._steps(jobs, first, tenant_id, beneath, here, _FOR_PSYCOPG)
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
            steps = self._steps(jobs, first, tenant_id, itself, here, STATEMENTS)
            return ConnectionSteps(steps, ask_async=_asyncpg(beneath))
        raise not_ours(beneath, self._where)

    def _steps(
        self,
        jobs: Sequence[NewJob],
        first: FirstEvents,
        tenant_id: str,
        connection: Any,
        here: Place,
        statements: Mapping[str, Statement],
    ) -> Steps[list[Enqueued]]:
        """What is done on the connection, with the statements as its driver takes them."""
        if connection not in self._trusted:
            try:
                yield from _check_place(statements, here, self._where)
            except OtherDatabase:
                self.place = None  # perhaps it is the App's database that has moved: the next call looks again
                raise
            self._trusted.add(connection)
        steps = _enqueue(statements, jobs, first, tenant_id)
        # One job is one statement, whole by itself: hundreds of savepoints in a transaction slow down the whole server.
        return (yield from (all_or_none(steps) if len(jobs) > 1 or first else steps))


_FOR_PSYCOPG: Mapping[str, Statement] = {
    name: compiled(name, SQL[name], lambda _, __: "%s")
    for name in ("enqueue_joined", "find_joined", "begin_logs", "this_database", "this_server")
}


def _request(statement: Statement, **values: Any) -> Request:
    return statement.sql, statement.values(values)


def _check_place(statements: Mapping[str, Statement], here: Place, where: str) -> Steps[None]:
    """Raise OtherDatabase unless the connection leads to the database the App is in."""
    [(name, oid, may_ask)] = yield _request(statements["this_database"])
    server = None
    if may_ask and here.server is not None:
        [(server,)] = yield _request(statements["this_server"])
    if (name, oid) != (here.name, here.oid) or (server is not None and server != here.server):
        raise other_database(
            f"a connection to PostgreSQL database '{name}'" + (" of another server" if name == here.name else ""), where
        )


def _enqueue(
    statements: Mapping[str, Statement], jobs: Sequence[NewJob], first: FirstEvents, tenant_id: str
) -> Steps[list[Enqueued]]:
    results: dict[UUID, Enqueued] = {}
    for part in (part for chunk in chunks(jobs) for part in apart(chunk)):
        missing = part
        while missing:
            rows = yield _request(statements["enqueue_joined"], jobs=jobs_as_json(missing, [tenant_id]))
            for (id,) in rows:
                results[UUID(id)] = Enqueued(UUID(id), created=True)
            events = [
                {"job_id": id, "type": event.type, "payload": event.payload}
                for (id,) in rows
                for event in first.get(UUID(id), ())
            ]
            if events:
                yield _request(statements["begin_logs"], events=json.dumps(events))
            missing = [job for job in missing if job.id not in results]
            if missing:
                rows = yield _request(statements["find_joined"], jobs=jobs_as_json(missing, [tenant_id]))
                by_id = {job.id: job for job in missing}
                for meant, id, same in rows:
                    job = by_id[UUID(meant)]
                    if not same:
                        raise idempotency_conflict(job, UUID(id))
                    held = held_key(job, UUID(id)) if job.unique is not None and id != meant else None
                    if isinstance(held, PerdureError):
                        raise held
                    results[job.id] = held or Enqueued(UUID(id), created=id == meant)
                # One that met nothing after all (what it met was pruned between the two statements) is inserted again.
                missing = [job for job in missing if job.id not in results]
    return [results[job.id] for job in jobs]


# -- the drivers -----------------------------------------------------------------------------------------------------------


def _psycopg(connection: Any) -> Callable[[str, Any], Rows]:
    tuples = sys.modules["psycopg.rows"].tuple_row  # the caller may have chosen another row type
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
