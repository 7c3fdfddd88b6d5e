"""What the views of one database share: its connections, batchers, notifier and clock."""

from __future__ import annotations

import asyncio
from datetime import datetime

import asyncpg

from perdure.model.errors import MalformedUrl
from perdure.model.timing import SYSTEM_CLOCK, Clock
from perdure.model.urls import has_secret
from perdure.store.group_commit.batcher import Batcher
from perdure.store.memory_vectors import VectorCache
from perdure.store.postgres.engine.connections import Pool, open_pool
from perdure.store.postgres.engine.database import Database
from perdure.store.postgres.engine.driver_errors import CLIENT_LIBRARY_ERRORS, cannot_connect, where_is
from perdure.store.postgres.engine.hot_connection import HotConnection
from perdure.store.postgres.engine.pooler import BehindPooler
from perdure.store.postgres.engine.url import NOT_ONE, WRITE, through_pooler
from perdure.store.postgres.engine.vacuum import Vacuum
from perdure.store.postgres.hints.notifier import Notifier
from perdure.store.postgres.jobs import enqueue
from perdure.store.postgres.jobs.enqueue import EnqueueWriter
from perdure.store.postgres.leases import finish, lease_connection, record
from perdure.store.postgres.leases.finish import CompletionWriter, EndingWithEffectsWriter, EndingWriter
from perdure.store.postgres.leases.lease_connection import LeaseConnection
from perdure.store.postgres.leases.record import EntryWriter, EventWriter
from perdure.store.postgres.memories.pgvectors import PgVectors
from perdure.store.postgres.tx_enqueue.tx_enqueue import TxEnqueue

POOL_SIZE = 4
"""Connections for everything that is not hot; with the hot ones and the notifier's a busy engine holds ten."""


class Engine:
    """One database, shared by the views of all tenants. Made by `open`; used from the event loop it was opened in."""

    def __init__(self, url: str, where: str, pool: Pool) -> None:
        self.url = url
        self.where = where
        self.clock: Clock = SYSTEM_CLOCK
        self.database = Database(pool)
        self.vacuum = Vacuum(self.database)
        self.vectors = VectorCache()
        self.pgvectors = PgVectors(self.database)
        self.notifier = Notifier(url, pool)
        self.tx_enqueue = TxEnqueue(self.database, where)

        lease_keeper = HotConnection(url, lease_connection.HOT_STATEMENTS)
        enqueuer = HotConnection(url, enqueue.HOT_STATEMENTS)
        recorder = HotConnection(url, record.HOT_STATEMENTS)
        finisher = HotConnection(url, finish.HOT_STATEMENTS)
        # For the operation whose callers go step by step; it connects when that is worth it. Enqueueing has none: a process that
        # only enqueues is to have two connections, this one and one of the pool.
        second_recorder = HotConnection(url, record.HOT_STATEMENTS)
        self._hot = (lease_keeper, enqueuer, recorder, finisher, second_recorder)

        self.lease_connection = LeaseConnection(lease_keeper, self.database)
        shared = (self.database, self.notifier, asyncio.Semaphore(POOL_SIZE // 2))
        self.enqueues = Batcher(EnqueueWriter(enqueuer, *shared))
        self.events = Batcher(EventWriter(recorder, *shared), EventWriter(second_recorder, *shared))
        self.entries = Batcher(EntryWriter(recorder, *shared))
        self.completions = Batcher(CompletionWriter(finisher, *shared))
        self.endings = Batcher(EndingWriter(finisher, *shared))
        self.endings_with_effects = Batcher(EndingWithEffectsWriter(finisher, *shared))
        self._closing: asyncio.Future[None] | None = None

    @classmethod
    async def open(cls, url: str) -> Engine:
        """Connect. The schema is not looked at. Raises MalformedUrl, StoreUnreachable; neither shows a password."""
        where = "the database"
        try:
            where = where_is(url)
            try:
                pool = await open_pool(url, size=POOL_SIZE)
            except BehindPooler:
                url = through_pooler(url)
                pool = await open_pool(url, size=POOL_SIZE)
        except (asyncpg.ClientConfigurationError, ValueError, OverflowError) as error:
            raise MalformedUrl(NOT_ONE, hint=WRITE) from (
                None if has_secret(url) else error
            )  # it repeats what it could not read, which a traceback would show
        except CLIENT_LIBRARY_ERRORS as error:
            raise cannot_connect(where, error) from error
        return cls(url, where, pool)

    async def now(self) -> datetime:
        """See `protocol.Store.now`."""
        row = await self.database.row("db_now")
        assert row is not None
        now: datetime = row["now"]
        return now

    async def close(self) -> None:
        """See `protocol.Store.close`."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        batchers = (self.enqueues, self.events, self.entries, self.completions, self.endings, self.endings_with_effects)
        await asyncio.gather(*(batcher.close() for batcher in batchers))
        await self.vacuum.close()
        await self.notifier.close()
        await asyncio.gather(*(hot.close() for hot in self._hot))
        try:
            async with asyncio.timeout(5):
                await self.database.pool.close()
        except TimeoutError:  # a caller still holds a connection
            self.database.pool.terminate()
