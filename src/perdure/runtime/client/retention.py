"""The client's retention: export jobs, and prune those that are finished."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from perdure.model.errors import InvalidInput, JobNotFound
from perdure.model.retention import ENDS, PruneFilter
from perdure.model.states import Status
from perdure.model.timing import Duration
from perdure.runtime.client.base import JobId
from perdure.runtime.client.queries import Looking, job_filter
from perdure.runtime.export_records import Record, records_of
from perdure.runtime.retention import BATCH, FORGOTTEN, Pruning, count
from perdure.runtime.validation import check_seconds

MOST_AT_ONCE = 10_000
PAGE = 20


class Retaining(Looking):
    """See `client.Client`."""

    async def export(
        self,
        *job_ids: JobId,
        redact: bool = False,
        status: str | Status | Sequence[str | Status] = (),
        kind: str | Sequence[str] = (),
        queue: str | Sequence[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        search: str | None = None,
    ) -> AsyncIterator[Record]:
        """Jobs with everything that is known of them, as JSON objects: for each a `job`, its `run`s, `approval`s and `event`s,
        and an `end`. In the given order; or those of the filters, as in `list`, newest first; without either, all.

        Memory holds a few jobs or events at a time, whatever their number. redact: payloads, results and people are blotted
        out, their shape stays. Never a token. Raises JobNotFound, AmbiguousId, InvalidInput.
        """
        store = await self.open()
        filters: dict[str, Any] = {
            "status": status,
            "kind": kind,
            "queue": queue,
            "since": since,
            "until": until,
            "search": search,
        }
        if job_ids:
            if any(filters.values()):
                raise InvalidInput("export takes ids or filters, not both")
            for id in [await self._id(job_id) for job_id in job_ids]:
                async for record in records_of(store, id, redact=redact):
                    yield record
            return
        cursor: str | None = None
        while True:
            page = await self.list(**filters, limit=PAGE, cursor=cursor)
            for job in page.items:
                try:
                    async for record in records_of(store, job.id, redact=redact):
                        yield record
                except JobNotFound:
                    continue  # pruned this moment
            if (cursor := page.next_cursor) is None:
                return

    async def prune(
        self,
        *,
        older_than: Duration,
        status: str | Status | Sequence[str | Status] = (),
        kind: str | Sequence[str] = (),
        queue: str | Sequence[str] = (),
        keep_logs: bool = False,
        export: str | PathLike[str] | None = None,
        batch: int = BATCH,
        dry_run: bool = False,
        on_batch: Callable[[int], None] | None = None,
    ) -> int:
        """Delete jobs that ended at least `older_than` (seconds or text) ago, with their logs, for good; return how many.

        One transaction per batch of at most `batch` jobs, fewer where they are large; `on_batch` is told the number so far
        after each. Stopped at any moment it leaves whole jobs, and can be called again to go on.
        status: only these ends. keep_logs: only payloads, results and checkpoints go. export: a file (JSON lines; gzipped if
        it ends in .gz) to which each job is appended and synced before the transaction that deletes it. dry_run: only count.
        Without filters it also forgets workers that were not heard of for so long, and for a day. Raises InvalidInput, and
        StoreError where the export cannot be written.
        """
        wanted = _wanted(older_than, status, kind, queue, heavy=keep_logs)
        _check_batch(batch)
        store = await self.open()
        if dry_run:
            return await count(store, wanted)
        path = None if export is None else Path(fspath(export))
        told = 0
        with Pruning(store, wanted, batch=batch, keep_logs=keep_logs, archive=path) as pruning:
            going = True
            while going:
                try:
                    going = await pruning.step()
                finally:
                    if on_batch is not None and pruning.pruned > told:
                        told = pruning.pruned
                        on_batch(told)
        if not (status or kind or queue):
            await store.retention.forget_workers(max(wanted.older_than, FORGOTTEN))
        return pruning.pruned


def _wanted(older_than: Any, status: Any, kind: Any, queue: Any, *, heavy: bool) -> PruneFilter:
    """A filter from what a person wrote. Raises InvalidInput for a status that is no end, and for an age that is none."""
    filter = job_filter(status, kind, queue)
    if live := [s for s in filter.statuses if not s.terminal]:
        raise InvalidInput(
            f"{live[0]} is no end of a job, and only finished jobs are pruned", hint=f"ends: {', '.join(ENDS)}"
        )
    age = check_seconds(older_than, "older_than")
    return PruneFilter(age, filter.statuses or ENDS, filter.kinds, filter.queues, heavy=heavy)


def _check_batch(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_AT_ONCE:
        raise InvalidInput(f"batch is a whole number from 1 to {MOST_AT_ONCE}, got {value!r}")
