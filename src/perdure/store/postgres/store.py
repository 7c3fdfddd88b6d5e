"""PostgresStore: all rooms together."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from weakref import WeakSet

import asyncpg

from perdure.model.errors import MalformedUrl
from perdure.model.jobs import DEFAULT_TENANT
from perdure.model.timing import SYSTEM_CLOCK, Clock
from perdure.model.urls import bears_secret
from perdure.store.group_commit.batcher import Batcher
from perdure.store.postgres.approvals.approvals import Approvals
from perdure.store.postgres.checks.checks import Checking
from perdure.store.postgres.engine.connections import HotConnection, Pool, open_pool
from perdure.store.postgres.engine.driver_errors import CLIENT_LIBRARY_ERRORS, cannot_connect, where_is
from perdure.store.postgres.engine.transactions import Database
from perdure.store.postgres.engine.vacuum import Vacuum
from perdure.store.postgres.figures.figures import Counting
from perdure.store.postgres.hints.notifier import Bell
from perdure.store.postgres.jobs import enqueue as enqueueing
from perdure.store.postgres.jobs.control import Changes
from perdure.store.postgres.jobs.enqueue import Enqueueing, EnqueueWriter
from perdure.store.postgres.jobs.explain import Explaining
from perdure.store.postgres.jobs.read import Jobs
from perdure.store.postgres.leases import finish as finishing
from perdure.store.postgres.leases import leases
from perdure.store.postgres.leases import record as recording
from perdure.store.postgres.leases.finish import CompletionWriter, EndingWriter, Finishing
from perdure.store.postgres.leases.leases import Leases
from perdure.store.postgres.leases.record import EntryWriter, EventWriter, Recording
from perdure.store.postgres.retention.retention import Retention
from perdure.store.postgres.schema.schema import PACKAGE, Schema
from perdure.store.postgres.tx_enqueue.tx_enqueue import Foreign
from perdure.store.postgres.workers.workers import Workers
from perdure.store.protocol import (
    ApprovalStore,
    CheckStore,
    FigureStore,
    HintStore,
    JobStore,
    LeaseStore,
    Listener,
    RetentionStore,
    SchemaStore,
    Topic,
    WorkerStore,
)
from perdure.store.statements import load_statements

POOL_SIZE = 4
"""Connections for everything that is not hot; with the hot ones and the bell a busy store holds eleven."""


class PostgresStore(
    Schema,
    Enqueueing,
    Foreign,
    Jobs,
    Explaining,
    Changes,
    Leases,
    Recording,
    Finishing,
    Approvals,
    Workers,
    Retention,
    Counting,
    Checking,
):
    """See `protocol.Store`. Made by `open`; used from the event loop it was opened in."""

    def __init__(self, url: str, where: str, pool: Pool, tenant: str) -> None:
        statements = load_statements(PACKAGE)
        statements |= enqueueing.adding(statements)
        self.tenant = self.tenant_id = tenant
        self.clock: Clock = SYSTEM_CLOCK
        self._url = url
        self._where = where
        self._db = Database(pool, statements, tenant)
        self._vacuum = Vacuum(self._db)
        self._bell = Bell(url, statements["notify"], tenant)
        self._keeper = HotConnection(url, statements, leases.HOT_STATEMENTS)
        enqueuer = HotConnection(url, statements, enqueueing.HOT_STATEMENTS)
        recorder = HotConnection(url, statements, recording.HOT_STATEMENTS)
        finisher = HotConnection(url, statements, finishing.HOT_STATEMENTS)
        # For the two operations whose callers go step by step; they connect when that is worth it.
        second_enqueuer = HotConnection(url, statements, enqueueing.HOT_STATEMENTS)
        second_recorder = HotConnection(url, statements, recording.HOT_STATEMENTS)
        self._hot = (self._keeper, enqueuer, recorder, finisher, second_enqueuer, second_recorder)
        aside = asyncio.Semaphore(POOL_SIZE // 2)
        self._enqueues = Batcher(
            EnqueueWriter(enqueuer, self._db, self._bell, aside),
            EnqueueWriter(second_enqueuer, self._db, self._bell, aside),
        )
        self._events = Batcher(
            EventWriter(recorder, self._db, self._bell, aside),
            EventWriter(second_recorder, self._db, self._bell, aside),
        )
        self._entries = Batcher(EntryWriter(recorder, self._db, self._bell, aside))
        self._completions = Batcher(CompletionWriter(finisher, self._db, self._bell, aside))
        self._endings = Batcher(EndingWriter(finisher, self._db, self._bell, aside))
        self._place = None
        self._trusted = WeakSet()
        self._closing: asyncio.Future[None] | None = None

    @property
    def schema(self) -> SchemaStore:
        """The schema."""
        return self

    @property
    def jobs(self) -> JobStore:
        """What clients do with jobs."""
        return self

    @property
    def leases(self) -> LeaseStore:
        """What workers do with jobs."""
        return self

    @property
    def approvals(self) -> ApprovalStore:
        """Questions to people."""
        return self

    @property
    def workers(self) -> WorkerStore:
        """Workers as rows."""
        return self

    @property
    def retention(self) -> RetentionStore:
        """Deleting finished jobs."""
        return self

    @property
    def figures(self) -> FigureStore:
        """Counts for dashboards and alerts."""
        return self

    @property
    def checks(self) -> CheckStore:
        """What fsck reads and repairs."""
        return self

    @property
    def hints(self) -> HintStore:
        """Hints between processes."""
        return self

    @classmethod
    async def open(cls, url: str, *, tenant: str = DEFAULT_TENANT) -> PostgresStore:
        """Connect. The schema is not looked at. Raises MalformedUrl, StoreUnreachable; neither shows a password."""
        where = "the database"
        try:
            where = where_is(url)
            pool = await open_pool(url, size=POOL_SIZE)
        except (asyncpg.ClientConfigurationError, ValueError, OverflowError) as error:
            raise MalformedUrl(
                "this is not a PostgreSQL URL",
                hint="write postgresql://user:password@host:5432/database, special characters as %XX",
            ) from (
                None if bears_secret(url) else error
            )  # it repeats what it could not read, which a traceback would show
        except CLIENT_LIBRARY_ERRORS as error:
            raise cannot_connect(where, error) from error
        return cls(url, where, pool, tenant)

    def listen(self, topic: Topic) -> AbstractAsyncContextManager[Listener]:
        """See `protocol.HintStore.listen`."""
        return self._bell.listen(topic)

    async def close(self) -> None:
        """See `protocol.SchemaStore.close`."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        batchers = (self._enqueues, self._events, self._entries, self._completions, self._endings)
        await asyncio.gather(*(batcher.close() for batcher in batchers))
        await self._vacuum.close()
        await self._bell.close()
        await asyncio.gather(*(hot.close() for hot in self._hot))
        try:
            async with asyncio.timeout(5):
                await self._db.pool.close()
        except TimeoutError:  # somebody still holds a connection
            self._db.pool.terminate()
