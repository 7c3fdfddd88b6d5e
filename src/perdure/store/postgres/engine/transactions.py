"""Plain transactions over the pool: retried when they lose against others, and the lock order that keeps that rare.

Lock order everywhere: job_claims, then jobs, then approvals and waits, then job_queue.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
import structlog

from perdure.model.errors import PerdureError
from perdure.model.ids import new_event_id
from perdure.model.jobs import Lease
from perdure.model.states import Status
from perdure.store.errors import job_not_found
from perdure.store.group_commit.retry import CLASHES, Trouble
from perdure.store.postgres.engine.connections import AnyConnection, Backoff, Isolation, Pool, borrowed, transaction
from perdure.store.postgres.engine.driver_errors import DAMAGED, Restart, out_of_reach, translated, trouble_of
from perdure.store.rows import Row

T = TypeVar("T")

STREAMED = 500
"""Rows of a stream that travel together."""

log = structlog.get_logger("perdure.store")

BLOCKS = 3
"""How often a transaction waits out the pool's lock_timeout before its caller is told."""


@dataclass(frozen=True, slots=True)
class Held:
    """A job whose claim (if any) and row are locked by this transaction."""

    id: UUID
    status: Status
    version: int  # the head of its log
    claim: Row | None


def is_held(lease: Lease, claim: Row, tenant: str) -> bool:
    """Whether a row of `lock_claim` is the live claim of this lease."""
    held = (claim["tenant_id"], claim["attempt"], claim["worker_id"])
    return bool(claim["live"]) and held == (tenant, lease.attempt, lease.worker_id)


class Tx:
    """One transaction. `again` is True where a former try may have been committed although its answer was lost."""

    def __init__(self, connection: AnyConnection, statements: Mapping[str, str], tenant: str, *, again: bool) -> None:
        self.connection = connection
        self.statements = statements
        self.tenant = tenant
        self.again = again

    async def rows(self, name: str, *arguments: Any) -> list[Row]:
        """All rows of a named statement."""
        rows: list[Any] = await self.connection.fetch(self.statements[name], *arguments)
        return rows

    async def row(self, name: str, *arguments: Any) -> Row | None:
        """The first row of a named statement."""
        rows = await self.rows(name, *arguments)
        return rows[0] if rows else None

    async def lock(self, job_id: UUID) -> Held:
        """Lock a job in the order of the house. Raises JobNotFound."""
        claim = await self.row("lock_claim", job_id)
        job = await self.row("lock_job", job_id, self.tenant)
        if job is None:
            raise job_not_found(job_id)
        status = Status(job["status"])
        if status.leased and claim is None:
            raise Restart("claimed between the two locks")  # asking for the claim now would turn the order round
        return Held(job_id, status, job["version"] if claim is None else claim["version"], claim)

    async def stream(self, name: str, *arguments: Any) -> AsyncIterator[Row]:
        """The rows of a named statement, few at a time."""
        rows: Any = self.connection.cursor(self.statements[name], *arguments, prefetch=STREAMED)
        async for row in rows:
            yield row

    async def write_event(self, job: Held, type: str, payload: str, id: str | None = None) -> int:
        """Append perdure's own event at the head of a held job's log, leased or not; return its version."""
        id = id or new_event_id()
        if job.claim is not None:
            row = await self.row("append_leased", job.id, id, type, payload)
        else:
            row = await self.row("append_free", job.id, job.version, id, type, payload)
        assert row is not None  # both rows are locked
        version: int = row["version"]
        return version


class Database:
    """The pool of one store, with its statements and tenant."""

    def __init__(self, pool: Pool, statements: Mapping[str, str], tenant: str) -> None:
        self.pool = pool
        self.statements = statements
        self.tenant = tenant

    async def rows(self, name: str, *arguments: Any) -> list[Row]:
        """All rows of a named statement; a lost connection is replaced and the statement repeated."""
        rows: list[Any] = await self._patiently(lambda c, _: c.fetch(self.statements[name], *arguments))
        return rows

    async def row(self, name: str, *arguments: Any) -> Row | None:
        """The first row of a named statement, as `rows`."""
        rows = await self.rows(name, *arguments)
        return rows[0] if rows else None

    async def sweep(self, name: str, lister: str, *arguments: Any, limit: int) -> list[Row]:
        """A statement over all jobs that are due for something; a damaged job does not keep the others from it.

        Its arguments are followed by the one job it shall be restricted to, or null. `lister` names the statement that
        lists the jobs, given limit and tenant.
        """
        try:
            return await self.rows(name, *arguments, None)
        except PerdureError as error:
            if not isinstance(error.__cause__, DAMAGED):
                raise
        rows: list[Row] = []
        for due in await self.rows(lister, limit, self.tenant):
            try:
                rows += await self.rows(name, *arguments, due["job_id"])
            except PerdureError as error:
                if out_of_reach(error):
                    raise
                log.error("a damaged job is left alone", by=name, job_id=str(due["job_id"]), error=str(error))  # noqa: TRY400
        return rows

    async def transact(
        self, work: Callable[[Tx], Awaitable[T]], *, isolation: Isolation | None = None, readonly: bool = False
    ) -> T:
        """Run `work` in one transaction and return what it returns after the commit.

        It is run again if it loses a deadlock (or, in one snapshot, against a change), or if the connection breaks: then
        `tx.again` tells it to look first.
        """

        async def run(connection: AnyConnection, again: bool) -> T:
            async with transaction(connection, isolation=isolation, readonly=readonly):
                return await work(Tx(connection, self.statements, self.tenant, again=again))

        return await self._patiently(run)

    async def _patiently(self, use: Callable[[AnyConnection, bool], Awaitable[T]]) -> T:
        backoff = Backoff()
        clashes = blocks = losses = 0
        again = False
        while True:
            try:
                async with borrowed(self.pool) as connection:
                    return await use(connection, again)
            except asyncpg.InvalidCachedStatementError:
                clashes += 1  # the schema was migrated under our feet; the driver has dropped its cache
            except Exception as error:
                match trouble_of(error):
                    # The first loss may have taken all patience, on a dead connection; a new one may do.
                    case Trouble.LOST if (losses == 0 or not backoff.over) and not self.pool.is_closing():
                        again = True
                        losses += 1
                        await backoff.pause()
                    case Trouble.AWAY if not backoff.over and not self.pool.is_closing():
                        await backoff.pause()
                    case Trouble.CLASH if clashes < CLASHES:
                        clashes += 1
                        await asyncio.sleep(random.uniform(0.5, 1.0) * min(0.002 * 2**clashes, 0.2))
                    case Trouble.BLOCKED if blocks < BLOCKS:
                        blocks += 1
                    case _:
                        refusal = translated(error)
                        if refusal is error:
                            raise
                        raise refusal from error
