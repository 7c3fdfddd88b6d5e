"""The contract of retention: part of `protocol.Store`, kept here for its size. The promises common to all methods hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from perdure.model.retention import PruneFilter, PrunePage

LOOKED_AT = 10_000
"""Rows that one `list_prunable` looks at, at most."""


class RetentionStore(Protocol):
    """Taking finished jobs out of the database."""

    async def list_prunable(
        self, wanted: PruneFilter, *, after: UUID | None = None, before: UUID | None = None, limit: int = 500
    ) -> PrunePage:
        """Finished jobs that match, by id, with ids above `after` and below `before`; at most `limit`.

        - Judged by database time. Jobs that are not terminal never match, whatever is asked.
        - It looks at a bounded number of rows: a page may be empty and yet not be the last. Going on from `next_after` until it
          is None looks at every job once.
        """
        ...

    async def prune(self, job_ids: Sequence[UUID], *, keep_logs: bool = False) -> int:
        """Delete these jobs with their events, runs, state and approvals, in one transaction; return how many went.

        - What is not terminal, is gone already, or is locked by another session (another prune) is left alone and not counted.
        - keep_logs: the job stays with its events, runs and approvals; its payload and result become null, its checkpoint goes,
          and `pruned_at` is set. A job whose `pruned_at` is set is left alone.
        - If the connection is lost during the commit, what that commit deleted may be missing from the count.
        """
        ...

    async def forget_workers(self, older_than: float) -> int:
        """Delete the rows of workers that have not been heard of for that many seconds and hold no lease; return how many."""
        ...

    async def lead(self, chore: str, *, holder: str, ttl: float) -> bool:
        """Take the leadership of a chore for `ttl` seconds, or prolong one's own. False while another holder has it.

        It is never given back: it runs out, and so it also spaces out what is done no more than every `ttl` seconds.
        """
        ...
