"""`client.jobs`, blocking."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Literal, TypeVar, Unpack, overload
from uuid import UUID

from perdure.model.actions import Action
from perdure.model.batches import Batch
from perdure.model.children import TreeNode
from perdure.model.comparison import JobDiff
from perdure.model.conversation import ConversationMessage
from perdure.model.events import Event
from perdure.model.explanation import Explanation
from perdure.model.job_changes import BulkResult
from perdure.model.jobs import Job, Page, RunRecord
from perdure.model.partial import PartialResult
from perdure.model.shared_budgets import SharedBudget
from perdure.model.signals import Signal
from perdure.model.states import Status
from perdure.model.timing import Duration
from perdure.runtime.background import BackgroundLoop
from perdure.runtime.client.base import JobId
from perdure.runtime.client.bulk import OnBatch, Which
from perdure.runtime.client.enqueue import EnqueueOptions, Request
from perdure.runtime.client.jobs import Jobs as AsyncJobs
from perdure.runtime.client.signals import HasId
from perdure.runtime.export_records import Record
from perdure.runtime.handle import Handle as AsyncHandle
from perdure.runtime.registry import Handler
from perdure.sync.handle import Handle

I = TypeVar("I")  # noqa: E741  the handler's input
O = TypeVar("O")  # noqa: E741  the handler's output


class Jobs:
    """See `perdure.Client.jobs`; each call does what the one of the same name does there."""

    def __init__(self, jobs: AsyncJobs, background: BackgroundLoop) -> None:
        self._jobs = jobs
        self._background = background

    def _handle(self, handle: AsyncHandle[O]) -> Handle[O]:
        return Handle(handle, self._background)

    @overload
    def enqueue(
        self, job: Handler[None, O], /, *, tx: object = None, **options: Unpack[EnqueueOptions]
    ) -> Handle[O]: ...
    @overload
    def enqueue(
        self, job: Handler[I, O], input: I, /, *, tx: object = None, **options: Unpack[EnqueueOptions]
    ) -> Handle[O]: ...
    @overload
    def enqueue(
        self, job: str, input: Any = None, /, *, tx: object = None, **options: Unpack[EnqueueOptions]
    ) -> Handle[Any]: ...
    def enqueue(
        self, job: Any, input: Any = None, /, *, tx: object = None, **options: Unpack[EnqueueOptions]
    ) -> Handle[Any]:
        """See `Jobs.enqueue`. tx: a blocking connection, which is used in this thread and no other."""
        if tx is not None:
            [joined] = self.enqueue_many([Request(job, input, options)], tx=tx)
            return joined
        return self._handle(self._background.run(self._jobs.enqueue(job, input, **options)))

    def enqueue_many(self, requests: Iterable[Request], *, tx: object = None) -> builtins.list[Handle[Any]]:
        """See `Jobs.enqueue_many`. tx: as for `enqueue`."""
        if tx is None:
            return [self._handle(h) for h in self._background.run(self._jobs.enqueue_many(requests))]
        return [self._handle(h) for h in self._background.run(self._jobs.prepare_in_transaction(requests, tx)).run()]

    def enqueue_batch(self, requests: Iterable[Request], callback: Request) -> Handle[Any]:
        """See `Jobs.enqueue_batch`."""
        return self._handle(self._background.run(self._jobs.enqueue_batch(requests, callback)))

    def batch(self, job_id: JobId) -> Batch:
        """See `Jobs.batch`."""
        return self._background.run(self._jobs.batch(job_id))

    def handle(self, job_id: JobId, output_type: Any = None) -> Handle[Any]:
        """See `Jobs.handle`."""
        return self._handle(self._jobs.handle(job_id, output_type))

    def get(self, job_id: JobId, *, at: int | None = None) -> Job:
        """See `Jobs.get`."""
        return self._background.run(self._jobs.get(job_id, at=at))

    def list(
        self,
        *,
        status: str | Status | Sequence[str | Status] = (),
        kind: str | Sequence[str] = (),
        queue: str | Sequence[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        search: str | None = None,
        idempotency_key: str | None = None,
        tags: str | Sequence[str] = (),
        agent: str | None = None,
        session: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Job]:
        """See `Jobs.list`."""
        return self._background.run(
            self._jobs.list(
                status=status,
                kind=kind,
                queue=queue,
                since=since,
                until=until,
                search=search,
                idempotency_key=idempotency_key,
                tags=tags,
                agent=agent,
                session=session,
                limit=limit,
                cursor=cursor,
            )
        )

    def count(
        self,
        *,
        by: Literal["status", "kind", "queue"] = "status",
        status: str | Status | Sequence[str | Status] = (),
        kind: str | Sequence[str] = (),
        queue: str | Sequence[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        search: str | None = None,
        idempotency_key: str | None = None,
        tags: str | Sequence[str] = (),
    ) -> dict[str, int]:
        """See `Jobs.count`."""
        return self._background.run(
            self._jobs.count(
                by=by,
                status=status,
                kind=kind,
                queue=queue,
                since=since,
                until=until,
                search=search,
                idempotency_key=idempotency_key,
                tags=tags,
            )
        )

    def runs(self, job_id: JobId) -> builtins.list[RunRecord]:
        """See `Jobs.runs`."""
        return self._background.run(self._jobs.runs(job_id))

    def events(self, job_id: JobId, *, after: int = 0) -> builtins.list[Event]:
        """See `Jobs.events`."""
        return self._background.run(self._jobs.events(job_id, after=after))

    def messages(self, job_id: JobId) -> builtins.list[ConversationMessage]:
        """See `Jobs.messages`."""
        return self._background.run(self._jobs.messages(job_id))

    def variables(self, job_id: JobId) -> dict[str, Any]:
        """See `Jobs.variables`."""
        return self._background.run(self._jobs.variables(job_id))

    def actions(self, job_id: JobId) -> builtins.list[Action]:
        """See `Jobs.actions`."""
        return self._background.run(self._jobs.actions(job_id))

    def explain(self, job_id: JobId) -> Explanation:
        """See `Jobs.explain`."""
        return self._background.run(self._jobs.explain(job_id))

    def tree(self, job_id: JobId, *, limit: int = 1000) -> builtins.list[TreeNode]:
        """See `Jobs.tree`."""
        return self._background.run(self._jobs.tree(job_id, limit=limit))

    def shared_budgets(self, job_id: JobId) -> builtins.list[SharedBudget]:
        """See `Jobs.shared_budgets`."""
        return self._background.run(self._jobs.shared_budgets(job_id))

    def partial_result(self, job_id: JobId) -> PartialResult:
        """See `Jobs.partial_result`."""
        return self._background.run(self._jobs.partial_result(job_id))

    def diff(self, a: JobId, b: JobId) -> JobDiff:
        """See `Jobs.diff`."""
        return self._background.run(self._jobs.diff(a, b))

    def watch(self, job_id: JobId, from_version: int = 0) -> Iterator[Event]:
        """See `Jobs.watch`."""
        return self._background.iterate(self._jobs.watch(job_id, from_version))

    def wait(self, job_id: JobId, *, timeout: Duration | None = None) -> Job:
        """See `Jobs.wait`."""
        return self._background.run(self._jobs.wait(job_id, timeout=timeout))

    def result(
        self, job_id: JobId, *, timeout: Duration | None = None, output_type: Any = None, follow: bool = False
    ) -> Any:
        """See `Jobs.result`."""
        result = self._jobs.result(job_id, timeout=timeout, output_type=output_type, follow=follow)
        return self._background.run(result)

    def append(
        self, job_id: JobId, expected_version: int, type: str, payload: Any = None, *, event_id: UUID | None = None
    ) -> int:
        """See `Jobs.append`."""
        return self._background.run(self._jobs.append(job_id, expected_version, type, payload, event_id=event_id))

    def cancel(self, job_id: JobId, reason: str | None = None, *, force: bool = False) -> Status:
        """See `Jobs.cancel`."""
        return self._background.run(self._jobs.cancel(job_id, reason, force=force))

    def signal(self, job: JobId | HasId, key: str, payload: Any = None, *, id: str | None = None) -> Signal:
        """See `Jobs.signal`."""
        return self._background.run(self._jobs.signal(job, key, payload, id=id))

    def signals(self, job: JobId | HasId, *, pending: bool = False) -> builtins.list[Signal]:
        """See `Jobs.signals`."""
        return self._background.run(self._jobs.signals(job, pending=pending))

    def retry_now(self, job_id: JobId, reason: str | None = None) -> None:
        """See `Jobs.retry_now`."""
        self._background.run(self._jobs.retry_now(job_id, reason))

    def rerun(self, job_id: JobId, reason: str | None = None) -> Handle[Any]:
        """See `Jobs.rerun`."""
        return self._handle(self._background.run(self._jobs.rerun(job_id, reason)))

    def fork(
        self, job_id: JobId, from_step: str | int | None = None, *, input: Any = ..., reason: str | None = None
    ) -> Handle[Any]:
        """See `Jobs.fork`."""
        return self._handle(self._background.run(self._jobs.fork(job_id, from_step, input=input, reason=reason)))

    def export(
        self,
        *job_ids: JobId,
        redact: bool = False,
        status: str | Status | Sequence[str | Status] = (),
        kind: str | Sequence[str] = (),
        queue: str | Sequence[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        search: str | None = None,
        tags: str | Sequence[str] = (),
    ) -> Iterator[Record]:
        """See `Jobs.export`."""
        return self._background.iterate(
            self._jobs.export(
                *job_ids,
                redact=redact,
                status=status,
                kind=kind,
                queue=queue,
                since=since,
                until=until,
                search=search,
                tags=tags,
            )
        )

    def edit(
        self,
        job_id: JobId,
        *,
        priority: int | None = None,
        run_at: datetime | None = None,
        delay: Duration | None = None,
        input: Any = ...,
        reason: str | None = None,
    ) -> Job:
        """See `Jobs.edit`."""
        edited = self._jobs.edit(job_id, priority=priority, run_at=run_at, delay=delay, input=input, reason=reason)
        return self._background.run(edited)

    def delete(self, job_id: JobId, reason: str | None = None) -> None:
        """See `Jobs.delete`."""
        self._background.run(self._jobs.delete(job_id, reason))

    def cancel_many(
        self,
        reason: str | None = None,
        *,
        force: bool = False,
        dry_run: bool = False,
        on_batch: OnBatch | None = None,
        **which: Unpack[Which],
    ) -> BulkResult:
        """See `Jobs.cancel_many`."""
        return self._background.run(
            self._jobs.cancel_many(reason, force=force, dry_run=dry_run, on_batch=on_batch, **which)
        )

    def retry_many(
        self,
        reason: str | None = None,
        *,
        dry_run: bool = False,
        on_batch: OnBatch | None = None,
        **which: Unpack[Which],
    ) -> BulkResult:
        """See `Jobs.retry_many`."""
        return self._background.run(self._jobs.retry_many(reason, dry_run=dry_run, on_batch=on_batch, **which))

    def edit_many(
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
        """See `Jobs.edit_many`."""
        edited = self._jobs.edit_many(
            reason, priority=priority, run_at=run_at, delay=delay, dry_run=dry_run, on_batch=on_batch, **which
        )
        return self._background.run(edited)

    def rerun_many(
        self,
        reason: str | None = None,
        *,
        dry_run: bool = False,
        on_batch: OnBatch | None = None,
        **which: Unpack[Which],
    ) -> BulkResult:
        """See `Jobs.rerun_many`."""
        return self._background.run(self._jobs.rerun_many(reason, dry_run=dry_run, on_batch=on_batch, **which))

    def delete_many(
        self,
        reason: str | None = None,
        *,
        dry_run: bool = False,
        on_batch: OnBatch | None = None,
        **which: Unpack[Which],
    ) -> BulkResult:
        """See `Jobs.delete_many`."""
        return self._background.run(self._jobs.delete_many(reason, dry_run=dry_run, on_batch=on_batch, **which))
