"""Plain transactions over the pool: tried again when they lose against others, or when the connection breaks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import asyncpg
import structlog

from perdure.model.errors import PerdureError
from perdure.store.group_commit.retry import Failure, Retries
from perdure.store.postgres.engine.connections import AnyConnection, Isolation, Pool, borrowed, transaction
from perdure.store.postgres.engine.driver_errors import DAMAGED, failure_of, out_of_reach, raise_translated
from perdure.store.postgres.engine.statements import STATEMENTS
from perdure.store.rows import Row

T = TypeVar("T")

STREAMED = 500
"""Rows of a stream that travel together."""

BLOCKS = 3
"""How often a transaction waits out the pool's lock_timeout before its caller gets an error."""

log = structlog.get_logger("perdure.store")


class Transaction:
    """One transaction. `again` is True where an earlier one of the same work may have been committed although its answer was
    lost."""

    def __init__(self, connection: AnyConnection, *, again: bool) -> None:
        self.connection = connection
        self.again = again

    async def rows(self, name: str, /, **values: Any) -> list[Row]:
        """All rows of a named statement."""
        statement = STATEMENTS[name]
        rows: list[Any] = await self.connection.fetch(statement.sql, *statement.values(values))
        return rows

    async def row(self, name: str, /, **values: Any) -> Row | None:
        """The first row of a named statement."""
        rows = await self.rows(name, **values)
        return rows[0] if rows else None

    async def stream(self, name: str, /, **values: Any) -> AsyncIterator[Row]:
        """The rows of a named statement, few at a time."""
        statement = STATEMENTS[name]
        rows: Any = self.connection.cursor(statement.sql, *statement.values(values), prefetch=STREAMED)
        async for row in rows:
            yield row


class Database:
    """The pool, used through named statements."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    async def rows(self, name: str, /, **values: Any) -> list[Row]:
        """All rows of a named statement; a lost connection is replaced and the statement repeated."""
        statement = STATEMENTS[name]
        arguments = statement.values(values)
        rows: list[Any] = await self._retried(lambda c, _: c.fetch(statement.sql, *arguments))
        return rows

    async def row(self, name: str, /, **values: Any) -> Row | None:
        """The first row of a named statement, as `rows`."""
        rows = await self.rows(name, **values)
        return rows[0] if rows else None

    async def sweep(self, name: str, lister: str, *, tenant_id: str, limit: int, **values: Any) -> list[Row]:
        """A statement over all jobs that are due for something; a damaged job does not keep the others from it.

        It has a parameter `only_job`, null for all of them. `lister` names the statement that lists those jobs.
        """
        values = {**values, "tenant_id": tenant_id, "limit": limit}
        try:
            return await self.rows(name, only_job=None, **values)
        except PerdureError as error:
            if not isinstance(error.__cause__, DAMAGED):
                raise
        rows: list[Row] = []
        for due in await self.rows(lister, tenant_id=tenant_id, limit=limit):
            try:
                rows += await self.rows(name, only_job=due["job_id"], **values)
            except PerdureError as error:
                if out_of_reach(error):
                    raise
                log.error("a damaged job is left alone", by=name, job_id=str(due["job_id"]), error=str(error))  # noqa: TRY400  the error says it all
        return rows

    async def transact(
        self, work: Callable[[Transaction], Awaitable[T]], *, isolation: Isolation | None = None, readonly: bool = False
    ) -> T:
        """Run `work` in one transaction and return what it returns after the commit.

        It is run again if it loses a deadlock (or, in one snapshot, against a change), or if the connection breaks: then
        `tx.again` tells it to look first.
        """

        async def run(connection: AnyConnection, again: bool) -> T:
            async with transaction(connection, isolation=isolation, readonly=readonly):
                return await work(Transaction(connection, again=again))

        return await self._retried(run)

    async def _retried(self, use: Callable[[AnyConnection, bool], Awaitable[T]]) -> T:
        retries = Retries(blocks=BLOCKS, even_late=(Failure.LOST,))
        again = False
        while True:
            try:
                async with borrowed(self.pool) as connection:
                    return await use(connection, again)
            except Exception as error:  # noqa: BLE001  raised again unless it can be retried
                # The schema was migrated since the statement was prepared; the driver has dropped what it kept of it.
                outdated = isinstance(error, asyncpg.InvalidCachedStatementError)
                failure = Failure.CLASH if outdated else failure_of(error)
                again = again or failure is Failure.LOST
                if self.pool.is_closing() or not await retries.again(failure):
                    raise_translated(error)
