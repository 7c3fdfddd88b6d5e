"""The client's steering: append, cancel, retry, and commands to workers."""

from __future__ import annotations

import builtins
from typing import Any
from uuid import UUID

from perdure.model.events import NewEvent
from perdure.model.states import Status
from perdure.model.workers import WorkerCommand, WorkerInfo
from perdure.runtime import codec
from perdure.runtime.client.base import Base, JobId
from perdure.runtime.validation import check_event_type


class Steering(Base):
    """See `client.Client`."""

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
        return await (await self.open()).jobs.append(await self._id(job_id), expected_version, event)

    async def cancel(self, job_id: JobId, reason: str | None = None, *, force: bool = False) -> Status:
        """Cancel in any state; return the status afterwards.

        A running handler is stopped by its worker within a second; if the worker does not answer for 10 s, or with
        force=True, it is fenced off. Cancelled already is fine; finished otherwise raises IllegalTransition.
        """
        return await (await self.open()).jobs.cancel(await self._id(job_id), note=self._note(reason), force=force)

    async def retry_now(self, job_id: JobId, reason: str | None = None) -> None:
        """Make a job in backoff, or one delayed, due now. Raises IllegalTransition in other states."""
        await (await self.open()).jobs.retry_now(await self._id(job_id), note=self._note(reason))

    async def workers(self, *, include_stopped: bool = False) -> builtins.list[WorkerInfo]:
        """The workers that share this database."""
        return await (await self.open()).workers.list_workers(include_stopped=include_stopped)

    async def command_worker(self, worker_id: str, command: WorkerCommand) -> None:
        """Ask a worker to drain or stop. Raises WorkerNotFound, AmbiguousId."""
        await (await self.open()).workers.command_worker(worker_id, command)
