"""A client for synchronous programs: the async one on a background event loop, nothing said twice."""

from __future__ import annotations

import asyncio
import builtins
import os
import threading
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack, overload
from uuid import UUID

from perdure.app import App
from perdure.model.approvals import Approval
from perdure.model.comparison import JobDiff
from perdure.model.errors import StoreUnreachable
from perdure.model.events import Event
from perdure.model.explanation import Explanation
from perdure.model.fsck_faults import Finding
from perdure.model.jobs import Job, Page, RunRecord
from perdure.model.states import Status
from perdure.model.timing import Duration
from perdure.model.workers import WorkerCommand, WorkerInfo
from perdure.runtime.client.base import JobId
from perdure.runtime.client.enqueue import EnqueueOptions, Request
from perdure.runtime.export_records import Record
from perdure.runtime.handle import Handle as AsyncHandle
from perdure.runtime.registry import Handler

I = TypeVar("I")  # noqa: E741  the handler's input
O = TypeVar("O")  # noqa: E741  the handler's output
T = TypeVar("T")


class Client:
    """`perdure.App`'s client calls, blocking. Thread-safe. Close it, or use it as a context manager, which opens the store.

    app: an App (its handlers give types and policies) or a database URL; None = the settings.
    """

    def __init__(self, app: App | str | None = None) -> None:
        self._app = app if isinstance(app, App) else App(app)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="perdure-sync", daemon=True)
        self._thread.start()
        self._process = os.getpid()
        self._door = threading.Lock()
        self._closed = False

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._process != os.getpid():
            coroutine.close()
            raise StoreUnreachable(
                "this client was made before the process was forked, and its thread stayed in the other process",
                hint="make a perdure.sync.Client of its own in each process, after the fork",
            )
        with self._door:
            if self._closed:
                coroutine.close()
                raise StoreUnreachable("this client is closed")
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except (CancelledError, StoreUnreachable):
            if not self._closed:
                raise
            raise StoreUnreachable("this client was closed by another thread while the call waited") from None

    def _iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        async def following() -> T | None:
            return await anext(items, None)

        while (item := self._run(following())) is not None:
            yield item

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
        """See `perdure.Client.enqueue`. tx: a blocking connection, which is used in this thread and no other."""
        if tx is not None:
            [joined] = self.enqueue_many([Request(job, input, options)], tx=tx)
            return joined
        return Handle(self, self._run(self._app.enqueue(job, input, **options)))

    def enqueue_many(self, requests: Iterable[Request], *, tx: object = None) -> builtins.list[Handle[Any]]:
        """See `perdure.Client.enqueue_many`. tx: as for `enqueue`."""
        if tx is None:
            return [Handle(self, h) for h in self._run(self._app.enqueue_many(requests))]
        return [Handle(self, h) for h in self._run(self._app.joining(requests, tx)).now()]

    def get(self, job_id: JobId, *, at: int | None = None) -> Job:
        """See `perdure.Client.get`."""
        return self._run(self._app.get(job_id, at=at))

    def list(self, **filters: Any) -> Page[Job]:
        """See `perdure.Client.list`."""
        return self._run(self._app.list(**filters))

    def count(self, **filters: Any) -> dict[str, int]:
        """See `perdure.Client.count`."""
        return self._run(self._app.count(**filters))

    def runs(self, job_id: JobId) -> builtins.list[RunRecord]:
        """See `perdure.Client.runs`."""
        return self._run(self._app.runs(job_id))

    def events(self, job_id: JobId, *, after: int = 0) -> builtins.list[Event]:
        """See `perdure.Client.events`."""
        return self._run(self._app.events(job_id, after=after))

    def explain(self, job_id: JobId) -> Explanation:
        """See `perdure.Client.explain`."""
        return self._run(self._app.explain(job_id))

    def diff(self, a: JobId, b: JobId) -> JobDiff:
        """See `perdure.Client.diff`."""
        return self._run(self._app.diff(a, b))

    def watch(self, job_id: JobId, from_version: int = 0) -> Iterator[Event]:
        """See `perdure.Client.watch`."""
        return self._iterate(self._app.watch(job_id, from_version))

    def wait(self, job_id: JobId, *, timeout: Duration | None = None) -> Job:
        """See `perdure.Client.wait`."""
        return self._run(self._app.wait(job_id, timeout=timeout))

    def result(self, job_id: JobId, *, timeout: Duration | None = None) -> Any:
        """See `perdure.Client.result`."""
        return self._run(self._app.result(job_id, timeout=timeout))

    def append(self, job_id: JobId, expected_version: int, type: str, payload: Any = None) -> int:
        """See `perdure.Client.append`."""
        return self._run(self._app.append(job_id, expected_version, type, payload))

    def cancel(self, job_id: JobId, reason: str | None = None, *, force: bool = False) -> Status:
        """See `perdure.Client.cancel`."""
        return self._run(self._app.cancel(job_id, reason, force=force))

    def retry_now(self, job_id: JobId, reason: str | None = None) -> None:
        """See `perdure.Client.retry_now`."""
        self._run(self._app.retry_now(job_id, reason))

    def rerun(self, job_id: JobId, reason: str | None = None) -> Handle[Any]:
        """See `perdure.Client.rerun`."""
        return Handle(self, self._run(self._app.rerun(job_id, reason)))

    def fork(self, job_id: JobId, from_step: str | int | None = None, **options: Any) -> Handle[Any]:
        """See `perdure.Client.fork`."""
        return Handle(self, self._run(self._app.fork(job_id, from_step, **options)))

    def approvals(self, **filters: Any) -> Page[Approval]:
        """See `perdure.Client.approvals`."""
        return self._run(self._app.approvals(**filters))

    def approval(self, approval_id: JobId) -> Approval:
        """See `perdure.Client.approval`."""
        return self._run(self._app.approval(approval_id))

    def approve(self, approval_id: JobId | None = None, **decision: Any) -> Approval:
        """See `perdure.Client.approve`."""
        return self._run(self._app.approve(approval_id, **decision))

    def deny(self, approval_id: JobId | None = None, **decision: Any) -> Approval:
        """See `perdure.Client.deny`."""
        return self._run(self._app.deny(approval_id, **decision))

    def new_token(self, approval_id: JobId) -> str:
        """See `perdure.Client.new_token`."""
        return self._run(self._app.new_token(approval_id))

    def export(self, *job_ids: JobId, **options: Any) -> Iterator[Record]:
        """See `perdure.Client.export`."""
        return self._iterate(self._app.export(*job_ids, **options))

    def prune(self, **options: Any) -> int:
        """See `perdure.Client.prune`."""
        return self._run(self._app.prune(**options))

    def workers(self, *, include_stopped: bool = False) -> builtins.list[WorkerInfo]:
        """See `perdure.Client.workers`."""
        return self._run(self._app.workers(include_stopped=include_stopped))

    def command_worker(self, worker_id: str, command: WorkerCommand) -> None:
        """See `perdure.Client.command_worker`."""
        self._run(self._app.command_worker(worker_id, command))

    def fsck(self, *, fix: bool = False) -> Iterator[Finding]:
        """See `perdure.Client.fsck`."""
        findings = self._app.fsck(fix=fix)

        async def following() -> Finding | None:
            return await anext(findings, None)

        while (finding := self._run(following())) is not None:
            yield finding

    def close(self) -> None:
        """Close the store and stop the loop; calls that still wait in other threads raise StoreUnreachable. Calling it twice
        is fine."""
        if self._process != os.getpid():
            return
        with self._door:
            if self._closed:
                return
            self._closed = True
        try:
            asyncio.run_coroutine_threadsafe(self._leave(), self._loop).result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _leave(self) -> None:
        try:
            await self._app.close()
        finally:
            waiting = asyncio.all_tasks() - {asyncio.current_task()}
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            await self._loop.shutdown_asyncgens()
            await self._app.close()  # one that had just begun may have opened it again

    def __enter__(self) -> Self:
        """Raises as `perdure.App.open`."""
        try:
            self._run(self._app.open())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Handle(Generic[O]):
    """A handle on one job, blocking; see `perdure.Handle`."""

    def __init__(self, client: Client, handle: AsyncHandle[O]) -> None:
        self._client = client
        self._handle = handle
        self.id: UUID = handle.id
        self.created: bool = handle.created

    def __repr__(self) -> str:
        return repr(self._handle)

    def get(self) -> Job:
        """The job as it stands."""
        return self._client.get(self.id)

    def status(self) -> Status:
        """Its status."""
        return self.get().status

    def result(self, timeout: Duration | None = None) -> O:
        """See `perdure.Handle.result`."""
        return self._client._run(self._handle.result(timeout))

    def watch(self, *, from_version: int = 0) -> Iterator[Event]:
        """See `perdure.Client.watch`."""
        return self._client.watch(self.id, from_version)

    def cancel(self, reason: str | None = None, *, force: bool = False) -> Status:
        """See `perdure.Client.cancel`."""
        return self._client.cancel(self.id, reason, force=force)
