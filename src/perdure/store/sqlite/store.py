"""SqliteStore: one tenant's view of a SQLite file, or of a database in memory."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from perdure.model.timing import Clock, SettableClock
from perdure.store.blobs.contents import BlobFolders
from perdure.store.protocol.blobs import ContentSettings
from perdure.store.sqlite.accounts.accounts import SqliteAccounts
from perdure.store.sqlite.agents.agents import SqliteAgents
from perdure.store.sqlite.approvals.approvals import SqliteApprovals
from perdure.store.sqlite.checks.checks import SqliteChecks
from perdure.store.sqlite.children.children import SqliteChildren
from perdure.store.sqlite.documents.documents import SqliteDocuments
from perdure.store.sqlite.engine.engine import Engine
from perdure.store.sqlite.figures.figures import SqliteFigures
from perdure.store.sqlite.files.files import SqliteFiles
from perdure.store.sqlite.hints.hints import SqliteHints
from perdure.store.sqlite.jobs.jobs import SqliteJobs
from perdure.store.sqlite.leases.leases import SqliteLeases
from perdure.store.sqlite.limits.limits import SqliteLimits
from perdure.store.sqlite.memories.memories import SqliteMemories
from perdure.store.sqlite.queues.queues import SqliteQueues
from perdure.store.sqlite.retention.retention import SqliteRetention
from perdure.store.sqlite.schedules.schedules import SqliteSchedules
from perdure.store.sqlite.schema.schema import SqliteSchema, check_fits, check_not_foreign
from perdure.store.sqlite.signals.signals import SqliteSignals
from perdure.store.sqlite.tool_runs.tool_runs import SqliteToolRuns
from perdure.store.sqlite.workers.workers import SqliteWorkers


class SqliteStore:
    """See `protocol.Store`. Views of several tenants share one engine. Every `memory:` store is a database of its own and
    ends with it."""

    def __init__(self, engine: Engine, tenant_id: str, folders: BlobFolders) -> None:
        self.engine: Final = engine
        self._folders = folders
        self.tenant_id: Final = tenant_id
        self.schema: Final = SqliteSchema(engine, folders)
        self.jobs: Final = SqliteJobs(engine, tenant_id)
        self.leases: Final = SqliteLeases(engine, tenant_id)
        self.approvals: Final = SqliteApprovals(engine, tenant_id)
        self.signals: Final = SqliteSignals(engine, tenant_id)
        self.agents: Final = SqliteAgents(engine, tenant_id)
        self.accounts: Final = SqliteAccounts(engine, tenant_id)
        self.files: Final = SqliteFiles(engine, tenant_id, folders)
        self.tool_runs: Final = SqliteToolRuns(engine, tenant_id)
        self.workers: Final = SqliteWorkers(engine, tenant_id)
        self.children: Final = SqliteChildren(engine, tenant_id)
        self.limits: Final = SqliteLimits(engine, tenant_id)
        self.schedules: Final = SqliteSchedules(engine, tenant_id)
        self.queues: Final = SqliteQueues(engine, tenant_id)
        self.memories: Final = SqliteMemories(engine, tenant_id)
        self.documents: Final = SqliteDocuments(engine, tenant_id)
        self.retention: Final = SqliteRetention(engine, tenant_id)
        self.figures: Final = SqliteFigures(engine, tenant_id)
        self.checks: Final = SqliteChecks(engine, tenant_id, self.schema, self.files)
        self.hints: Final = SqliteHints(engine)

    @classmethod
    async def open(
        cls,
        path: str | None,
        *,
        tenant: str,
        clock: SettableClock | None = None,
        creates: bool = True,
        allow_other_tables: bool = True,
        contents: ContentSettings | None = None,
    ) -> SqliteStore:
        """Open the database in this file, made where there is none, or (None) a new one in memory, whose time may be a clock.

        An existing file is read before anything of it is changed. allow_other_tables=False: refuse one with other tables and no
        schema of perdure's. creates=False: refuse one without that schema.
        Raises StoreUnreachable if the directory is missing, or if this is no database or cannot be written; StoreError if
        this Python's SQLite is too old; ForeignDatabase; with creates=False as `check_schema`.
        """
        inspect = partial(check_not_foreign, allow_other_tables=allow_other_tables) if creates else check_fits
        engine = await Engine.open(path, clock=clock, inspect=inspect, creates=creates)
        default = None if engine.path is None else Path(f"{engine.path}-blobs")
        return cls(engine, tenant, BlobFolders(contents or ContentSettings(), default))

    def tenant(self, tenant_id: str) -> SqliteStore:
        """See `protocol.Store.tenant`."""
        return SqliteStore(self.engine, tenant_id, self._folders)

    @property
    def clock(self) -> Clock:
        """See `protocol.Store.clock`."""
        return self.engine.clock

    async def now(self) -> datetime:
        """See `protocol.Store.now`."""
        return await self.engine.now()

    async def close(self) -> None:
        """See `protocol.Store.close`."""
        await self.engine.close()
