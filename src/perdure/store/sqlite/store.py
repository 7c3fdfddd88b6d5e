"""The store in a SQLite file, or in memory, put together from its rooms."""

from __future__ import annotations

import copy
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

from perdure.model.timing import SYSTEM_CLOCK, Clock, SettableClock
from perdure.store.hints import LocalHints
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
from perdure.store.sqlite.approvals.approvals import Approvals
from perdure.store.sqlite.checks.checks import Checking
from perdure.store.sqlite.engine.database import Readers, apart, check_engine, check_place, peek
from perdure.store.sqlite.engine.writer import NEWS, WORK, Writer
from perdure.store.sqlite.figures.figures import Counting
from perdure.store.sqlite.hints.notifier import Doorbell
from perdure.store.sqlite.jobs.enqueue import Enqueueing
from perdure.store.sqlite.jobs.explain import Explaining
from perdure.store.sqlite.jobs.read import Jobs
from perdure.store.sqlite.leases.attempts import Attempts
from perdure.store.sqlite.leases.leases import Leases
from perdure.store.sqlite.retention.retention import Retention
from perdure.store.sqlite.schema.schema import Schema, check_fits, check_not_foreign
from perdure.store.sqlite.tx_enqueue.tx_enqueue import Foreign
from perdure.store.sqlite.workers.workers import Workers

_TOPICS: tuple[tuple[int, Topic], ...] = ((WORK, "work"), (NEWS, "news"))


class SqliteStore(
    Schema, Enqueueing, Foreign, Jobs, Explaining, Leases, Attempts, Approvals, Workers, Retention, Counting, Checking
):
    """See `protocol.Store`. Every `memory:` store is a database of its own and ends with it."""

    def __init__(self, path: str | None, tenant: str, clock: SettableClock | None) -> None:
        """Use `open`."""
        self.tenant_id = tenant
        self.clock: Clock = clock or SYSTEM_CLOCK
        self._path = path
        self._writer = Writer(path, self._told, clock)
        self._readers = None if path is None else Readers(path)
        self._hints = LocalHints()
        self._bell = None if path is None else Doorbell(path, self._hints.notify)

    def tenant(self, tenant_id: str) -> SqliteStore:
        """See `protocol.Store.tenant`."""
        view = copy.copy(self)
        view.tenant_id = tenant_id
        return view

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
    async def open(
        cls,
        path: str | None,
        *,
        tenant: str,
        clock: SettableClock | None = None,
        creates: bool = True,
        allow_other_tables: bool = True,
    ) -> SqliteStore:
        """Open the database in this file, made where there is none, or (None) a new one in memory, whose time a clock may
        be.

        An existing file is read before anything of it is changed. allow_other_tables=False: refuse one with other tables and no
        schema of perdure's. creates=False: refuse one without that schema.
        Raises StoreUnreachable if the directory is missing, or if this is no database or cannot be written; StoreError if
        this Python's SQLite is too old; ForeignDatabase; with creates=False as `check_schema`.
        """
        check_engine()
        if path is not None:
            path = os.path.abspath(path)  # noqa: ASYNC240, PTH100  no I/O, and no resolving of links
            check_place(path)
            look = partial(check_not_foreign, allow_other_tables=allow_other_tables) if creates else check_fits
            await apart(partial(peek, path, look, absent=creates))
        store = cls(path, tenant, clock)
        await store._writer.open()
        return store

    def listen(self, topic: Topic) -> AbstractAsyncContextManager[Listener]:
        """See `protocol.HintStore.listen`."""
        return self._listen(topic)

    @asynccontextmanager
    async def _listen(self, topic: Topic) -> AsyncIterator[Listener]:
        if self._bell is not None:
            self._bell.open_ear()
        try:
            async with self._hints.listen(topic) as listener:
                yield listener
        finally:
            if self._bell is not None:
                self._bell.close_ear()

    async def close(self) -> None:
        """See `protocol.SchemaStore.close`."""
        await self._writer.close()
        if self._readers is not None:
            await apart(self._readers.close)
        if self._bell is not None:
            self._bell.close()

    def _told(self, topics: int) -> None:
        """A commit changed something: here at once, in other processes through their bells."""
        for bit, topic in _TOPICS:
            if topics & bit:
                self._hints.notify(topic)
                if self._bell is not None:
                    self._bell.ring(topic)
