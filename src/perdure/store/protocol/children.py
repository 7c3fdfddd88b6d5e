"""Jobs that jobs have spawned. Part of `protocol.Store`.

Children are stored by the effect `spawn_job` of their parent, and waited for by a wait of kind `child`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from perdure.model.batches import BatchJob
from perdure.model.children import ChildState, TreeNode


class ChildStore(Protocol):
    """Parents and children, and who waits for whom."""

    async def read_children(self, ids: Sequence[UUID]) -> list[ChildState]:
        """These jobs, those that exist, in any order. They need not be children."""
        ...

    async def list_children(self, parent_id: UUID) -> list[BatchJob]:
        """All children of a job, in order of id."""
        ...

    async def waiters(self, job_id: UUID) -> list[tuple[UUID, UUID]]:
        """The jobs that stand above this one, at any height: each with the one below it that it waits for, or is the parent of.
        Every pair is there once, those next to the job first."""
        ...

    async def tree(self, job_id: UUID, *, limit: int) -> list[TreeNode]:
        """The job and what descends from it, at most `limit`: level by level, in order of id. Empty if there is no such job."""
        ...

    async def cancelled_parents(self, *, limit: int) -> list[UUID]:
        """Cancelled jobs whose children may be yet to be cancelled. With nothing to do it costs a look at an empty table."""
        ...

    async def children_to_cancel(self, parent_id: UUID, *, limit: int) -> list[UUID]:
        """Children that have not ended and are not asked to stop."""
        ...

    async def forget_cancelled(self, parent_id: UUID) -> None:
        """Its children are cancelled, or asked to stop."""
        ...
