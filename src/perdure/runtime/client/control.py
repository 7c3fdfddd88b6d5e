"""The control of jobs by a client: append, cancel, retry."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from perdure.model.events import NewEvent
from perdure.model.states import Status
from perdure.runtime import codec
from perdure.runtime.client.base import ClientPart, JobId
from perdure.runtime.validation import check_event_type


class JobControl(ClientPart):
    """See `jobs.Jobs`."""

    async def append(
        self, job_id: JobId, expected_version: int, type: str, payload: Any = None, *, event_id: UUID | None = None
    ) -> int:
        """Append an event of your own to a job that no worker holds, if its head is `expected_version`; return the new one.

        Raises JobLeased, VersionMismatch, IllegalTransition (terminal), JobNotFound, InvalidInput, NotJson, TooLarge. The
        same event_id twice is one event.
        """
        check_event_type(type)
        text = codec.encode({} if payload is None else payload, f"event '{type}'")
        event = NewEvent(type, text) if event_id is None else NewEvent(type, text, str(event_id))
        return await (await self._store()).jobs.append(await self._id(job_id), expected_version, event)

    async def cancel(self, job_id: JobId, reason: str | None = None, *, force: bool = False) -> Status:
        """Cancel in any state; return the status afterwards.

        A running handler is stopped by its worker within a second; if the worker does not answer for 10 s, or with
        force=True, it is fenced off. Cancelled already is fine; finished otherwise raises IllegalTransition.
        """
        return await (await self._store()).jobs.cancel(
            await self._id(job_id), note=self._scope.note(reason), force=force
        )

    async def retry_now(self, job_id: JobId, reason: str | None = None) -> None:
        """Make a job in backoff, or one delayed, due now. Raises IllegalTransition in other states."""
        await (await self._store()).jobs.retry_now(await self._id(job_id), note=self._scope.note(reason))
