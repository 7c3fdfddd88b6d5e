"""Sending signals to jobs, and reading them, by a client."""

from __future__ import annotations

import builtins
from typing import Any, Protocol
from uuid import UUID

from perdure.model.ids import uuid7
from perdure.model.signals import NewSignal, Signal
from perdure.runtime import codec
from perdure.runtime.client.base import ClientPart, JobId
from perdure.runtime.validation import check_key, check_text


class HasId(Protocol):
    """A handle on a job."""

    @property
    def id(self) -> UUID:
        """The job's id."""
        ...


class JobSignals(ClientPart):
    """See `jobs.Jobs`."""

    async def signal(self, job: JobId | HasId, key: str, payload: Any = None, *, id: str | None = None) -> Signal:
        """Send a signal to a job, given by its id or its handle; return it.

        The job's `wait_signal` of the same key takes it, once; one that comes before the job waits is kept. id: a second signal
        of the same job with it is the same signal, and is not sent again. Raises SignalTooLate (the job has ended),
        SignalConflict (the id belongs to another signal of the job), JobNotFound, AmbiguousId, InvalidInput, NotJson, TooLarge.
        """
        new = NewSignal(
            id=uuid7(),
            job_id=await self._id(job if isinstance(job, (UUID, str)) else job.id),
            key=check_key(key, "key"),
            payload=codec.encode(payload, f"the payload of signal '{key}'"),
            caller_id=check_text(id, "id", 200),
            actor=self._scope.actor,
            via=self._scope.via,
        )
        return await (await self._store()).signals.send_signal(new)

    async def signals(self, job: JobId | HasId, *, pending: bool = False) -> builtins.list[Signal]:
        """The signals that were sent to a job, in order, at most 1,000. pending: those that no wait has taken yet. Raises
        JobNotFound, AmbiguousId."""
        store = await self._store()
        id = await self._id(job if isinstance(job, (UUID, str)) else job.id)
        found = await store.signals.list_signals(id, pending=pending)
        if not found:
            await store.jobs.get_job(id)  # raises where there is no such job
        return found
