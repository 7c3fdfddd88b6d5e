"""`client.queues`, blocking."""

from __future__ import annotations

import builtins

from perdure.model.queues import QueueInfo, QueuePause
from perdure.runtime.background import BackgroundLoop
from perdure.runtime.client.queues import Queues as AsyncQueues


class Queues:
    """See `perdure.Client.queues`."""

    def __init__(self, queues: AsyncQueues, background: BackgroundLoop) -> None:
        self._queues = queues
        self._background = background

    def list(self) -> builtins.list[QueueInfo]:
        """See `Queues.list`."""
        return self._background.run(self._queues.list())

    def pause(self, queue: str, reason: str | None = None) -> QueuePause:
        """See `Queues.pause`."""
        return self._background.run(self._queues.pause(queue, reason))

    def resume(self, queue: str, reason: str | None = None) -> QueuePause | None:
        """See `Queues.resume`."""
        return self._background.run(self._queues.resume(queue, reason))

    def pauses(self, queue: str | None = None, *, limit: int = 50) -> builtins.list[QueuePause]:
        """See `Queues.pauses`."""
        return self._background.run(self._queues.pauses(queue, limit=limit))
