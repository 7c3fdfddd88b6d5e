"""Deleting finished jobs, and the leaders of chores. Part of `protocol.Store`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol
from uuid import UUID

from perdure.model.events import Event
from perdure.model.retention import PruneFilter, PrunePage

MOST_FORGOTTEN = 1000
"""Messages or signals that one `forget_messages` reads, at most."""

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

    async def forget_messages(
        self, what: Literal["message", "signal"], older_than: float, *, after: UUID | None = None
    ) -> tuple[int, UUID | None]:
        """Delete old messages or signals to agents that no job will get any more, in one transaction; return how many, and the
        `after` of the next call; None: that was the last.

        - message: those that expired or came too late, and those to no agent; unless the job that sent them has not ended.
        - signal: those that expired, and those that a job has got which has ended or was deleted.
        - Never one that is pending. Messages that a job has got go with that job: see `prune`. Ages are by database time.
        - It reads the first MOST_FORGOTTEN with ids above `after`, whether they match or not.
        """
        ...

    async def forget_workers(self, older_than: float) -> int:
        """Delete the rows of workers whose last heartbeat is that many seconds ago and that hold no lease; return how many."""
        ...

    async def lead(self, chore: str, *, holder: str, ttl: float) -> bool:
        """Make `holder` the leader of a chore for `ttl` seconds, or renew that. False while another holder is the leader.

        Leadership is not given back: it expires. So a chore whose leader has stopped is done again after `ttl` seconds.
        """
        ...
