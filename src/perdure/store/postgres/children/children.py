"""Jobs that jobs of one tenant have spawned."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from perdure.model.batches import BatchJob
from perdure.model.children import ChildState, TreeNode
from perdure.store.child_rows import batch_job_of, child_of, node_of
from perdure.store.postgres.engine.codec import CODEC
from perdure.store.postgres.engine.engine import Engine


class PostgresChildren:
    """See `protocol.ChildStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._database = engine.database
        self._tenant_id = tenant_id

    async def read_children(self, ids: Sequence[UUID]) -> list[ChildState]:
        """See `protocol.ChildStore.read_children`."""
        rows = await self._database.rows("read_children", ids=list(ids), tenant_id=self._tenant_id)
        return [child_of(row, CODEC) for row in rows]

    async def list_children(self, parent_id: UUID) -> list[BatchJob]:
        """See `protocol.ChildStore.list_children`."""
        rows = await self._database.rows("list_children", parent_id=parent_id, tenant_id=self._tenant_id)
        return [batch_job_of(row, CODEC) for row in rows]

    async def waiters(self, job_id: UUID) -> list[tuple[UUID, UUID]]:
        """See `protocol.ChildStore.waiters`."""
        return [(row["id"], row["below"]) for row in await self._database.rows("waiters", job_id=job_id)]

    async def tree(self, job_id: UUID, *, limit: int) -> list[TreeNode]:
        """See `protocol.ChildStore.tree`."""
        rows = await self._database.rows("child_tree", job_id=job_id, tenant_id=self._tenant_id, limit=limit)
        return [node_of(row, CODEC) for row in rows]

    async def cancelled_parents(self, *, limit: int) -> list[UUID]:
        """See `protocol.ChildStore.cancelled_parents`."""
        rows = await self._database.rows("cancelled_parents", tenant_id=self._tenant_id, limit=limit)
        return [row["job_id"] for row in rows]

    async def children_to_cancel(self, parent_id: UUID, *, limit: int) -> list[UUID]:
        """See `protocol.ChildStore.children_to_cancel`."""
        rows = await self._database.rows("children_to_cancel", parent_id=parent_id, limit=limit)
        return [row["id"] for row in rows]

    async def forget_cancelled(self, parent_id: UUID) -> None:
        """See `protocol.ChildStore.forget_cancelled`."""
        await self._database.rows("forget_cancelled", parent_id=parent_id, tenant_id=self._tenant_id)
