"""The control of jobs by a client: append, cancel, retry."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from perdure.model.events import NewEvent
from perdure.model.states import Status
from perdure.runtime import codec
from perdure.runtime.cancelled_parents import cancel_children
from perdure.runtime.client.base import ClientPart, JobId
from perdure.runtime.validation import check_event_type


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
