"""The control of jobs by a client: append, cancel, retry, edit, delete."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import structlog

from perdure.model.errors import IllegalTransition, InvalidInput
from perdure.model.events import NewEvent
from perdure.model.ids import short_id
from perdure.model.job_changes import Editing
from perdure.model.jobs import Job
from perdure.model.states import Status
from perdure.model.timing import Duration
from perdure.runtime import codec
from perdure.runtime.cancelled_parents import cancel_children
from perdure.runtime.client.base import ClientPart, JobId
from perdure.runtime.payload import payload_of
from perdure.runtime.validation import check_delay, check_event_type, check_moment, check_priority

log = structlog.get_logger("perdure.client")


class JobControl(ClientPart):
    """See `jobs.Jobs`."""

    async def append(
        self, job_id: JobId, expected_version: int, type: str, payload: Any = None, *, event_id: UUID | None = None
    ) -> int:
        """Append an event of your own to a job that no worker holds, if its last version is `expected_version`; return the new
        version. The same event_id twice is one event.

        Raises JobLeased, VersionMismatch, IllegalTransition (the job has ended), JobNotFound, AmbiguousId, InvalidInput, NotJson,
        TooLarge.
        """
        check_event_type(type)
        text = codec.encode({} if payload is None else payload, f"event '{type}'")
        event = NewEvent(type, text) if event_id is None else NewEvent(type, text, str(event_id))
        return await (await self._store()).jobs.append(await self._id(job_id), expected_version, event)

    async def cancel(self, job_id: JobId, reason: str | None = None, *, force: bool = False) -> Status:
        """Cancel a job; return its status afterwards.

        The worker of a running job stops its handler within a second. If it does not within its grace, or with force=True, the
        job is taken from it. A cancelled job is left as it is. Its children are cancelled as well, and theirs.
        Raises IllegalTransition (the job has ended), JobNotFound, AmbiguousId.
        """
        store = await self._store()
        status = await store.jobs.cancel(await self._id(job_id), note=self._scope.note(reason), force=force)
        if status is Status.CANCELLED:
            await cancel_children(store, self._scope.actor, self._scope.via)
        return status

    async def retry_now(self, job_id: JobId, reason: str | None = None) -> None:
        """Make a job due now that waits for its retry, is delayed, or waits for code that fits what it recorded. Raises
        IllegalTransition in other states."""
        await (await self._store()).jobs.retry_now(await self._id(job_id), note=self._scope.note(reason))

    async def edit(
        self,
        job_id: JobId,
        *,
        priority: int | None = None,
        run_at: datetime | None = None,
        delay: Duration | None = None,
        input: Any = ...,
        reason: str | None = None,
    ) -> Job:
        """Give a job that no worker holds another priority, time or input; what is not given stays. Return the job.

        Its log says what changed, by whom and why. priority: while the job has not ended. run_at, delay: in PENDING and RETRY.
        input: only before the first claim; the job keeps its concurrency key, and its idempotency key stands for the new input.
        Raises IllegalTransition (the job runs or has ended), InvalidInput (also for the input of a task), InvalidPriority,
        NegativeDelay, NotJson, TooLarge, JobNotFound, AmbiguousId.
        """
        store, id = await self._store(), await self._id(job_id)
        payload = None
        if input is not ...:
            kind = (await store.jobs.get_job(id)).kind
            payload = payload_of(kind, self._scope.registry.find(kind), input)
        edit = editing(priority, run_at, delay, payload)
        [changed] = await store.jobs.change_jobs([id], edit, note=self._scope.note(reason))
        if changed.error is not None:
            raise changed.error
        return await store.jobs.get_job(id)

    async def delete(self, job_id: JobId, reason: str | None = None) -> None:
        """Delete a job that has ended, with its log, approvals and files, permanently, and with its conversation and actions,
        which a prune keeps. The log of this process has a line about it.

        Raises IllegalTransition (the job has not ended: cancel it first; or its parent has not, which reads its result),
        JobNotFound, AmbiguousId.
        """
        store = await self._store()
        job = await store.jobs.get_job(await self._id(job_id))
        if not job.status.terminal:
            raise IllegalTransition(
                f"job …{job.short_id} is {job.status}: only a job that has ended can be deleted",
                hint=f"cancel it first: perdure jobs cancel {job.short_id}",
            )
        if not await store.retention.prune([job.id], keep_memory=False):
            await store.jobs.get_job(job.id)  # raises if another process has deleted it
            raise IllegalTransition(
                f"job …{job.short_id} cannot be deleted: its parent has not ended, and reads its result",
                hint=None if job.parent_id is None else f"perdure jobs explain {short_id(job.parent_id)}",
            )
        await store.files.forget_contents()
        self._log_deleted(1, reason)

    def _log_deleted(self, number: int, reason: str | None) -> None:
        log.info("jobs deleted", jobs=number, actor=self._scope.actor, via=self._scope.via, reason=reason)


def editing(priority: object, run_at: object, delay: Any, payload: str | None) -> Editing:
    """An edit, checked. Raises InvalidInput, InvalidPriority, NegativeDelay."""
    edit = Editing(
        None if priority is None else check_priority(priority),
        check_moment(run_at, "run_at"),
        None if delay is None else check_delay(delay),
        payload,
    )
    if edit == Editing():
        raise InvalidInput("an edit needs something to change", hint="give a priority, a time or an input")
    if edit.run_at is not None and edit.delay is not None:
        raise InvalidInput("give either delay or run_at, not both")
    return edit
