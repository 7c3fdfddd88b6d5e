"""A blocking handle on one job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar
from uuid import UUID

from perdure.model.events import Event
from perdure.model.jobs import Job
from perdure.model.signals import Signal
from perdure.model.states import Status
from perdure.model.timing import Duration
from perdure.runtime.background import BackgroundLoop
from perdure.runtime.handle import Handle as AsyncHandle

O_co = TypeVar("O_co", covariant=True)


class Handle(Generic[O_co]):
    """A handle on one job, blocking; see `perdure.Handle`."""

    def __init__(self, handle: AsyncHandle[O_co], background: BackgroundLoop) -> None:
        self._handle = handle
        self._background = background
        self.id: UUID = handle.id
        self.created: bool = handle.created

    def __repr__(self) -> str:
        return repr(self._handle)

    def get(self) -> Job:
        """See `perdure.Handle.get`."""
        return self._background.run(self._handle.get())

    def status(self) -> Status:
        """See `perdure.Handle.status`."""
        return self._background.run(self._handle.status())

    def result(self, timeout: Duration | None = None, *, follow: bool = False) -> O_co:
        """See `perdure.Handle.result`."""
        return self._background.run(self._handle.result(timeout, follow=follow))

    def events(self, *, after: int = 0) -> list[Event]:
        """See `perdure.Handle.events`."""
        return self._background.run(self._handle.events(after=after))

    def watch(self, *, from_version: int = 0) -> Iterator[Event]:
        """See `perdure.Handle.watch`."""
        return self._background.iterate(self._handle.watch(from_version=from_version))

    def cancel(self, reason: str | None = None, *, force: bool = False) -> Status:
        """See `perdure.Handle.cancel`."""
        return self._background.run(self._handle.cancel(reason, force=force))

    def signal(self, key: str, payload: Any = None, *, id: str | None = None) -> Signal:
        """See `perdure.Handle.signal`."""
        return self._background.run(self._handle.signal(key, payload, id=id))
