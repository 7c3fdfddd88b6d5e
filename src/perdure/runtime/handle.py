"""A handle on one job: what `enqueue` returns."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

from perdure.model.events import Event
from perdure.model.ids import short_id
from perdure.model.jobs import Job
from perdure.model.signals import Signal
from perdure.model.states import Status
from perdure.model.timing import Duration

O_co = TypeVar("O_co", covariant=True)


class JobCalls(Protocol):
    """What a handle needs of the client that made it."""

    async def get(self, job_id: UUID, /) -> Job: ...
    async def result(self, job_id: UUID, /, *, timeout: Duration | None, output_type: Any, follow: bool) -> Any: ...
    async def events(self, job_id: UUID, /, *, after: int) -> list[Event]: ...
    def watch(self, job_id: UUID, from_version: int, /) -> AsyncIterator[Event]: ...
    async def cancel(self, job_id: UUID, reason: str | None, /, *, force: bool) -> Status: ...
    async def signal(self, job: UUID, key: str, payload: Any, /, *, id: str | None) -> Signal: ...


class Handle(Generic[O_co]):
    """One job by id. `created` is False if a job with the same idempotency key existed."""

    def __init__(self, client: JobCalls, id: UUID, output_type: Any = None, *, created: bool = True) -> None:
        self._client = client
        self._output_type = output_type
        self.id = id
        self.created = created

    def __repr__(self) -> str:
        return f"<Handle …{short_id(self.id)}>"

    async def get(self) -> Job:
        """The job as it is now. Raises JobNotFound."""
        return await self._client.get(self.id)

    async def status(self) -> Status:
        """Its status. Raises JobNotFound."""
        return (await self.get()).status

    async def result(self, timeout: Duration | None = None, *, follow: bool = False) -> O_co:
        """Wait for the end and return what the handler returned, typed as it is annotated.

        timeout: seconds or text; None waits without a limit. follow: if the job was rerun, the result of its newest rerun. Raises
        JobFailed, JobCancelled, JobPruned, WaitTimeout, and InvalidInput if the result does not fit its type. A timeout does not
        change the job.

        In a handler, and in what it calls, a limit must be given unless the job is finished, else it raises WaitInsideJob: the
        handler keeps its slot, which may be the only one for that job.
        """
        value: O_co = await self._client.result(self.id, timeout=timeout, output_type=self._output_type, follow=follow)
        return value

    async def events(self, *, after: int = 0) -> list[Event]:
        """All events with a version above `after`, in order."""
        return await self._client.events(self.id, after=after)

    def watch(self, *, from_version: int = 0) -> AsyncIterator[Event]:
        """See `Jobs.watch`."""
        return self._client.watch(self.id, from_version)

    async def cancel(self, reason: str | None = None, *, force: bool = False) -> Status:
        """See `Jobs.cancel`."""
        return await self._client.cancel(self.id, reason, force=force)

    async def signal(self, key: str, payload: Any = None, *, id: str | None = None) -> Signal:
        """See `Jobs.signal`."""
        return await self._client.signal(self.id, key, payload, id=id)
