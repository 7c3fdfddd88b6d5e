"""PostgresStore: one tenant's view of a PostgreSQL database."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from perdure.model.jobs import DEFAULT_TENANT
from perdure.model.timing import Clock
from perdure.store.blobs.contents import BlobFolders, user_data_folder
from perdure.store.postgres.accounts.accounts import PostgresAccounts
from perdure.store.postgres.agents.agents import PostgresAgents
from perdure.store.postgres.approvals.approvals import PostgresApprovals
from perdure.store.postgres.checks.checks import PostgresChecks
from perdure.store.postgres.children.children import PostgresChildren
from perdure.store.postgres.documents.documents import PostgresDocuments
from perdure.store.postgres.engine.engine import Engine
from perdure.store.postgres.figures.figures import PostgresFigures
from perdure.store.postgres.files.files import PostgresFiles
from perdure.store.postgres.hints.hints import PostgresHints
from perdure.store.postgres.jobs.jobs import PostgresJobs
from perdure.store.postgres.leases.leases import PostgresLeases
from perdure.store.postgres.limits.limits import PostgresLimits
from perdure.store.postgres.memories.memories import PostgresMemories
from perdure.store.postgres.queues.queues import PostgresQueues
from perdure.store.postgres.retention.retention import PostgresRetention
from perdure.store.postgres.schedules.schedules import PostgresSchedules
from perdure.store.postgres.schema.schema import PostgresSchema
from perdure.store.postgres.signals.signals import PostgresSignals
from perdure.store.postgres.tool_runs.tool_runs import PostgresToolRuns
from perdure.store.postgres.workers.workers import PostgresWorkers
from perdure.store.protocol.blobs import ContentSettings


class PostgresStore:
    """See `protocol.Store`. Views of several tenants share one engine."""

    def __init__(self, engine: Engine, tenant_id: str, folders: BlobFolders) -> None:
        self.engine: Final = engine
        self._folders = folders
        self.tenant_id: Final = tenant_id
        self.schema: Final = PostgresSchema(engine)
        self.jobs: Final = PostgresJobs(engine, tenant_id)
        self.leases: Final = PostgresLeases(engine, tenant_id)
        self.approvals: Final = PostgresApprovals(engine, tenant_id)
        self.signals: Final = PostgresSignals(engine, tenant_id)
        self.agents: Final = PostgresAgents(engine, tenant_id)
        self.accounts: Final = PostgresAccounts(engine, tenant_id)
        self.files: Final = PostgresFiles(engine, tenant_id, folders)
        self.tool_runs: Final = PostgresToolRuns(engine, tenant_id)
        self.workers: Final = PostgresWorkers(engine, tenant_id)
        self.children: Final = PostgresChildren(engine, tenant_id)
        self.limits: Final = PostgresLimits(engine, tenant_id)
        self.schedules: Final = PostgresSchedules(engine, tenant_id)
        self.queues: Final = PostgresQueues(engine, tenant_id)
        self.memories: Final = PostgresMemories(engine, tenant_id)
        self.documents: Final = PostgresDocuments(engine, tenant_id)
        self.retention: Final = PostgresRetention(engine, tenant_id)
        self.figures: Final = PostgresFigures(engine, tenant_id)
        self.checks: Final = PostgresChecks(engine, tenant_id, self.schema, self.files)
        self.hints: Final = PostgresHints(engine, tenant_id)

    @classmethod
    async def open(
        cls, url: str, *, tenant: str = DEFAULT_TENANT, contents: ContentSettings | None = None
    ) -> PostgresStore:
        """Connect. The schema is not looked at. Raises MalformedUrl, StoreUnreachable; neither shows a password."""
        default = user_data_folder() / "perdure" / "blobs"
        return cls(await Engine.open(url), tenant, BlobFolders(contents or ContentSettings(), default))

    def tenant(self, tenant_id: str) -> PostgresStore:
        """See `protocol.Store.tenant`."""
        return PostgresStore(self.engine, tenant_id, self._folders)

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
