"""Deleting finished jobs, batch by batch, and the chore of workers that does so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from uuid import UUID

import structlog

from perdure.model.errors import JobNotFound, StoreError
from perdure.model.ids import first_id_of
from perdure.model.retention import ENDS, Prunable, PruneFilter
from perdure.model.states import Status
from perdure.runtime.export_file import Archive
from perdure.runtime.export_records import line_of, records_of
from perdure.store.protocol import Store
from perdure.store.protocol.retention import MOST_EXAMINED

log = structlog.get_logger("perdure.retention")

BATCH = 500
FIRST_BATCH = 50
MOST_EVENTS = 20_000
"""Events that one transaction deletes, unless a single job has more."""

SHORT, LONG = 0.03, 0.12
"""Seconds: batches grow if a transaction takes less than SHORT, and shrink if it takes more than LONG."""

WORKERS_KEPT = 86400.0
"""The row of a worker is kept for at least that many seconds after its last heartbeat."""

BUDGET = 1.0
"""Seconds of one portion of the chore, of which each round of chores does one."""


class Pruning:
    """One pass over the finished jobs that match, one transaction per batch. However it is stopped, each job is either whole or
    deleted; another pass continues with the rest.

    batch: most jobs of one transaction; fewer if they are large, so that locks are short.
    archive: a file to which every job is written and synced before the transaction that deletes it. between: only ids
    in these open ranges, oldest first.
    """

    def __init__(
        self,
        store: Store,
        wanted: PruneFilter,
        *,
        batch: int = BATCH,
        keep_logs: bool = False,
        archive: Path | None = None,
        between: Sequence[tuple[UUID | None, UUID | None]] = ((None, None),),
    ) -> None:
        self.pruned = 0
        """Jobs so far."""
        self._store = store
        self._wanted = wanted
        self._batch = batch
        self._size = min(batch, FIRST_BATCH)
        self._keep_logs = keep_logs
        self._path = archive
        self._archive: Archive | None = None
        self._between = list(between)
        self._cancelled = False

    async def step(self) -> bool:
        """Prune the next batch; False after the last. If it is cancelled, it first finishes the batch that it has begun.

        Raises InvalidInput if the archive cannot be used, StoreError if it cannot be written; then nothing is deleted.
        """
        task = asyncio.ensure_future(self._step())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._cancelled = True
            while not task.done():  # a file and a transaction are open; the store's timeout limits how long that takes
                with suppress(asyncio.CancelledError):
                    await asyncio.wait({task})
            task.exception()
            raise

    async def _step(self) -> bool:
        if not self._between:
            return False
        after, before = self._between[0]
        page = await self._store.retention.list_prunable(self._wanted, after=after, before=before, limit=self._size)
        jobs = _first_jobs(page.jobs)
        exported = jobs if self._path is None else await self._export(jobs)
        if exported:
            began = time.monotonic()
            self.pruned += await self._store.retention.prune([job.id for job in exported], keep_logs=self._keep_logs)
            self._resize(time.monotonic() - began)
        next_after = jobs[-1].id if len(jobs) < len(page.jobs) else page.next_after
        if self._cancelled:
            return True
        if next_after is None:
            self._between.pop(0)
        else:
            self._between[0] = next_after, before
        return bool(self._between)

    def _resize(self, took: float) -> None:
        if took > LONG:
            self._size = max(1, self._size // 2)
        elif took < SHORT:
            self._size = min(self._batch, self._size * 2)

    async def _export(self, jobs: Sequence[Prunable]) -> list[Prunable]:
        """Write jobs to the archive; return those that are synced, without those that another process has pruned meanwhile."""
        if not jobs:
            return []
        assert self._path is not None
        exported = []
        try:
            if self._archive is None:
                self._archive = await asyncio.to_thread(Archive, self._path)
            for job in jobs:
                if self._cancelled:
                    break
                try:
                    async for record in records_of(self._store, job.id):
                        self._archive.add(line_of(record))
                except JobNotFound:
                    continue
                exported.append(job)
            await asyncio.to_thread(self._archive.save)
        except OSError as error:
            raise StoreError(
                f"cannot write {self._path}: {error.strerror}; jobs that are not exported were not deleted",
                hint="free some space, then prune again, with the same file or another",
            ) from error
        return exported

    def close(self) -> None:
        """Close the archive. A second call does nothing."""
        if self._archive is not None:
            self._archive.close()
            self._archive = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Forgetting:
    """One pass over the old messages and signals to agents that no job will get any more, one transaction per step."""

    def __init__(self, store: Store, older_than: float) -> None:
        self.forgotten = 0
        """Messages and signals so far."""
        self._store = store
        self._older_than = older_than
        self._left: list[Literal["message", "signal"]] = ["signal", "message"]
        self._after: UUID | None = None

    async def step(self) -> bool:
        """Delete those of the next batch; False after the last."""
        if not self._left:
            return False
        deleted, self._after = await self._store.retention.forget_messages(
            self._left[-1], self._older_than, after=self._after
        )
        self.forgotten += deleted
        if self._after is None:
            self._left.pop()
        return bool(self._left)


async def count(store: Store, wanted: PruneFilter) -> int:
    """How many jobs a prune would delete now, counted page by page."""
    found = 0
    after: UUID | None = None
    while True:
        page = await store.retention.list_prunable(wanted, after=after, limit=MOST_EXAMINED)
        found += len(page.jobs)
        if (after := page.next_after) is None:
            return found


def _first_jobs(jobs: Sequence[Prunable]) -> Sequence[Prunable]:
    """The first jobs, with at most MOST_EVENTS events together; at least one job."""
    events = 0
    for number, job in enumerate(jobs):
        events += job.events
        if events > MOST_EVENTS:
            return jobs[: max(1, number)]
    return jobs


@dataclass(frozen=True, slots=True)
class Retention:
    """Which jobs workers prune: those that ended more than `older_than` seconds ago in one of `statuses`."""

    older_than: float
    statuses: tuple[Status, ...] = ENDS
    keep_logs: bool = False


def prune_interval(retention: Retention) -> float:
    """Seconds from the end of one pass to the next: a 24th of the retention, from a minute to an hour."""
    return min(max(retention.older_than / 24, 60.0), 3600.0)


class PrunePass:
    """One pass over the finished jobs that are older than the retention, in portions: a chore of workers."""

    def __init__(self, store: Store, worker_id: str, retention: Retention) -> None:
        self._store = store
        self._worker_id = worker_id
        self._retention = retention
        self._pruning: Pruning | None = None
        self._forgetting = Forgetting(store, retention.older_than)

    async def __call__(self) -> bool:
        """Go on for about a second; True after the last batch. Raises StoreError; the next call then goes on."""
        if self._pruning is None:
            self._pruning = await self._begin()
        until = time.monotonic() + BUDGET
        for steps in (self._pruning, self._forgetting):
            while await steps.step():
                if time.monotonic() >= until:
                    return False
        await self._store.files.forget_contents()
        forgotten = await self._store.retention.forget_workers(max(self._retention.older_than, WORKERS_KEPT))
        messages = self._forgetting.forgotten
        if self._pruning.pruned or forgotten or messages:
            log.info("pruned", worker=self._worker_id, jobs=self._pruning.pruned, workers=forgotten, messages=messages)
        return True

    async def _begin(self) -> Pruning:
        """Ids of perdure hold their time, so newer jobs are not read. Ids that other programs made up may have any time, nearly
        all of them a later one than today's."""
        kept = self._retention
        now = await self._store.now()
        ranges = (
            (None, first_id_of(now - timedelta(seconds=kept.older_than))),
            (first_id_of(now + timedelta(days=1)), None),
        )
        wanted = PruneFilter(kept.older_than, kept.statuses, heavy=kept.keep_logs)
        return Pruning(self._store, wanted, keep_logs=kept.keep_logs, between=ranges)
