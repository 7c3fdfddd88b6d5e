"""Deleting finished jobs, and the leaders of chores. Part of `protocol.Store`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from perdure.model.events import Event
from perdure.model.retention import PruneFilter, PrunePage

MOST_EXAMINED = 10_000
"""Rows that one `list_prunable` reads, at most."""


class RetentionStore(Protocol):
    """Deleting finished jobs, and the leaders of chores."""

    async def list_prunable(
        self, wanted: PruneFilter, *, after: UUID | None = None, before: UUID | None = None, limit: int = 500
    ) -> PrunePage:
        """Finished jobs that match, by id, with ids above `after` and below `before`; at most `limit`.

        - Ages are by database time. Jobs that are not terminal never match.
        - It reads a bounded number of rows, so a page may be empty and not be the last. Going on from `next_after` until it is
          None reads every job once.
        """
        ...

    async def prune(self, job_ids: Sequence[UUID], *, keep_logs: bool = False, keep_memory: bool = True) -> int:
        """Delete these jobs with their events, runs, state and approvals, in one transaction; return how many were deleted.

        - A job that is not terminal, is deleted already, or is locked by another session (another prune) is skipped.
        - keep_logs: the job stays with its events, runs and approvals; its payload and result become null, its checkpoint, its
          files and the output of its coding CLIs (not the records of their runs) are deleted, and `pruned_at` is set. A job
          whose `pruned_at` is set is skipped.
        - keep_memory: the events of its conversation, its variables and its tools stay, for `list_pruned_memory`. A job that has
          none of these leaves nothing.
        - If the connection is lost during the commit, what that commit deleted may be missing from the count.
        """
        ...

    async def list_pruned_memory(
        self, job_id: UUID, *, types: Sequence[str], after: int = 0, limit: int = 1000
    ) -> list[Event]:
        """What a prune has kept of a job: its events of these types with a version above `after`, in order, at most `limit`. None
        of a job that was not pruned."""
        ...

    async def forget_workers(self, older_than: float) -> int:
        """Delete the rows of workers whose last heartbeat is that many seconds ago and that hold no lease; return how many."""
        ...

    async def lead(self, chore: str, *, holder: str, ttl: float) -> bool:
        """Make `holder` the leader of a chore for `ttl` seconds, or renew that. False while another holder is the leader.

        Leadership is not given back: it expires. So a chore whose leader has stopped is done again after `ttl` seconds.
        """
        ...
