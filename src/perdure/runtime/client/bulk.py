"""What a client does to all jobs that match a filter: cancel, retry, rerun, edit, delete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypedDict, Unpack

from perdure.model.errors import InvalidInput
from perdure.model.job_changes import (
    EDITABLE,
    ENDED,
    FAILED,
    LIVE,
    SAMPLE,
    BulkResult,
    Cancelling,
    JobChange,
    MakingDue,
)
from perdure.model.jobs import Enqueued, Job, JobFilter, NewJob
from perdure.model.states import Status
from perdure.model.timing import Duration
from perdure.runtime import codec
from perdure.runtime.cancelled_parents import cancel_children
from perdure.runtime.client.control import editing
from perdure.runtime.client.first_events import first_events_of, key_to_take, unique_to_take
from perdure.runtime.client.fork import JobFork
from perdure.runtime.client.new_jobs import again
from perdure.runtime.client.queries import job_filter
from perdure.runtime.observer import Sending
from perdure.store.protocol import Store

BATCH = 100
"""Jobs of one transaction."""

OnBatch = Callable[[int], None]


class Which(TypedDict, total=False):
    """Which jobs are meant; as in `list`: filters are combined with AND, several values of one with OR."""

    status: str | Status | Sequence[str | Status]
    kind: str | Sequence[str]
    queue: str | Sequence[str]
    since: datetime
    until: datetime
    search: str
    idempotency_key: str
    tags: str | Sequence[str]


class JobBulk(JobFork):
    """See `jobs.Jobs`."""

    async def cancel_many(
        self,
        reason: str | None = None,
        *,
        force: bool = False,
        dry_run: bool = False,
        on_batch: OnBatch | None = None,
        **which: Unpack[Which],
    ) -> BulkResult:
        """Cancel all jobs that match and have not ended, as `cancel` does.

        As every call of this kind it takes the jobs that exist when it begins, the newest first, 100 at a time, each batch in one
        transaction; `on_batch` is called with the number of changed jobs so far after each. Interrupted at any moment it leaves
        whole batches, and another call goes on. Without a filter it is refused. dry_run: only count. Raises InvalidInput.
        """
        wanted = _wanted(which, LIVE, "cancelled")
        result = await self._change(wanted, Cancelling(force), reason, dry_run, on_batch)
        if result.done:
            await cancel_children(await self._store(), self._scope.actor, self._scope.via)
        return result

    async def retry_many(
        self,
        reason: str | None = None,
        *,
        dry_run: bool = False,
        on_batch: OnBatch | None = None,
        **which: Unpack[Which],
    ) -> BulkResult:
        """Make all jobs that match due now, as `retry_now` does: those in RETRY, unless statuses are named. See `cancel_many`."""
        allowed = (Status.RETRY, Status.PENDING, Status.PARKED)
        wanted = _wanted(which, allowed, "made due now", default=(Status.RETRY,))
        return await self._change(wanted, MakingDue(), reason, dry_run, on_batch)

    async def edit_many(
        self,
        reason: str | None = None,
        *,
        priority: int | None = None,
        run_at: datetime | None = None,
        delay: Duration | None = None,
        dry_run: bool = False,
        on_batch: OnBatch | None = None,
        **which: Unpack[Which],
    ) -> BulkResult:
        """Give all jobs that match and that no worker holds another priority or time, as `edit` does. See `cancel_many`. Raises
        InvalidPriority and NegativeDelay as well."""
        edit = editing(priority, run_at, delay, None)
        allowed = (Status.PENDING, Status.RETRY) if edit.timed else EDITABLE
        return await self._change(_wanted(which, allowed, "edited"), edit, reason, dry_run, on_batch)

    async def rerun_many(
        self,
        reason: str | None = None,
        *,
        dry_run: bool = False,
        on_batch: OnBatch | None = None,
        **which: Unpack[Which],
    ) -> BulkResult:
        """Run all jobs again that match, have ended, and have no rerun yet: those that failed, unless statuses are named. See
        `cancel_many`. Jobs whose input was pruned are skipped."""
        store, wanted = await self._store(), _wanted(which, ENDED, "rerun", default=FAILED)
        self._scope.note(reason)  # raises before anything is written

        async def fresh(jobs: Sequence[Job]) -> list[Job]:
            known = await store.jobs.rerun_of([job.id for job in jobs])
            return [job for job in jobs if job.id not in known and job.pruned_at is None]

        async def rerun(jobs: Sequence[Job]) -> int:
            now = await store.now()
            new = [self._rerun_of(job, reason, now) for job in jobs]
            first = {one.id: await first_events_of(store.jobs, job.id) for one, job in zip(new, jobs, strict=True)}
            with Sending(self._observer, new) as sending:
                stored = await store.jobs.rerun_jobs(sending.jobs, first)
                sending.stored([Enqueued(job.id, created) for job, created in zip(new, stored, strict=True)])
            return sum(stored)

        return await _through(store, wanted, rerun, dry_run, on_batch, fresh)

    def _rerun_of(self, old: Job, reason: str | None, now: datetime) -> NewJob:
        note = self._scope.note(reason, origin=str(old.id))
        new = again(old, codec.encode(old.payload, "the payload"), "rerun", note)
        return new._replace(idempotency_key=key_to_take(old), unique=unique_to_take(old, now))

    async def delete_many(
        self,
        reason: str | None = None,
        *,
        dry_run: bool = False,
        on_batch: OnBatch | None = None,
        **which: Unpack[Which],
    ) -> BulkResult:
        """Delete all jobs that match and have ended, permanently, as `delete` does. See `cancel_many`. The children of a job that
        has not ended are skipped."""
        store, wanted = await self._store(), _wanted(which, ENDED, "deleted")
        self._scope.note(reason)  # raises before anything is written

        async def delete(jobs: Sequence[Job]) -> int:
            return await store.retention.prune([job.id for job in jobs], keep_memory=False)

        result = await _through(store, wanted, delete, dry_run, on_batch)
        if result.done:
            await store.files.forget_contents()
            self._log_deleted(result.done, reason)
        return result

    async def _change(
        self, wanted: JobFilter, change: JobChange, reason: str | None, dry_run: bool, on_batch: OnBatch | None
    ) -> BulkResult:
        store, note = await self._store(), self._scope.note(reason)

        async def act(jobs: Sequence[Job]) -> int:
            changed = await store.jobs.change_jobs([job.id for job in jobs], change, note=note)
            return sum(one.done for one in changed)

        return await _through(store, wanted, act, dry_run, on_batch)


async def _through(
    store: Store,
    wanted: JobFilter,
    act: Callable[[Sequence[Job]], Awaitable[int]],
    dry_run: bool,
    on_batch: OnBatch | None,
    narrow: Callable[[Sequence[Job]], Awaitable[Sequence[Job]]] | None = None,
) -> BulkResult:
    """Page by page to older ids: what is enqueued meanwhile is newer, and no job is met twice."""
    if dry_run and narrow is None:
        found = await store.jobs.count_jobs(wanted, by="status")
        shown = (await store.jobs.list_jobs(wanted, limit=SAMPLE)).items
        return BulkResult({s: found[s] for s in Status if s in found}, sample=shown, dry_run=True)
    counts, sample = Counter[Status](), list[Job]()
    done, cursor = 0, None
    while True:
        page = await store.jobs.list_jobs(wanted, limit=BATCH, cursor=cursor)
        jobs = page.items if narrow is None else await narrow(page.items)
        counts.update(job.status for job in jobs)
        if dry_run:
            sample += jobs[: SAMPLE - len(sample)]
        elif jobs:
            done += await act(jobs)
            if on_batch is not None:
                on_batch(done)
        if (cursor := page.next_cursor) is None:
            break
    by_status = {s: counts[s] for s in Status if counts[s]}
    return BulkResult(by_status, done, 0 if dry_run else counts.total() - done, tuple(sample), dry_run)


def _wanted(
    which: Which, allowed: Sequence[Status], verb: str, *, default: tuple[Status, ...] | None = None
) -> JobFilter:
    """The filter, with the statuses in which this is possible. Raises InvalidInput."""
    if unknown := which.keys() - Which.__annotations__.keys():
        raise InvalidInput(
            f"unknown filters: {', '.join(sorted(unknown))}", hint=f"known: {', '.join(Which.__annotations__)}"
        )
    if empty := [name for name, value in which.items() if value is not None and not value]:
        raise InvalidInput(
            f"the filter {empty[0]} is empty, which would mean all jobs",
            hint="leave it out, or give at least one value",
        )
    if not any(which.values()):
        raise InvalidInput("many jobs at once need a filter", hint="for example a status, a kind or a queue")
    everything: dict[str, Any] = {"status": (), "kind": (), "queue": ()}
    filter = job_filter(**everything | which)
    if bad := [status for status in filter.statuses if status not in allowed]:
        raise InvalidInput(f"jobs in {bad[0]} cannot be {verb}", hint=f"give one or several of: {', '.join(allowed)}")
    return filter if filter.statuses else replace(filter, statuses=tuple(default or allowed))
