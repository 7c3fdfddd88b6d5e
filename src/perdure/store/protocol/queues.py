"""Pauses of queues. Part of `protocol.Store`."""

from __future__ import annotations

from typing import Protocol

from perdure.model.queues import QueuePause


class QueueStore(Protocol):
    """Queues are paused and resumed."""

    async def pause_queue(
        self, queue: str, *, by: str, via: str | None = None, reason: str | None = None
    ) -> QueuePause:
        """From now on no claim takes a job of this queue. A queue that is paused already stays as it is; its pause is returned.

        - Jobs that are leased go on, also where they wait under their lease. Jobs are enqueued, become due, expire and are
          cancelled as always. What a job that is not leased waits for may end; it starts after the end of the pause.
        - A claim that began before this call returned may still take jobs; none that begins later does.
        - A claim costs the same however many jobs wait in the queue.
        - It needs no job in the queue, and is of one tenant.
        """
        ...

    async def resume_queue(
        self, queue: str, *, by: str, via: str | None = None, reason: str | None = None
    ) -> QueuePause | None:
        """End the pause of this queue and return it; None if it is not paused. A hint wakes the workers."""
        ...

    async def list_pauses(
        self, *, queue: str | None = None, only_open: bool = False, limit: int = 1000
    ) -> list[QueuePause]:
        """The pauses, the newest first, with those that have ended unless only_open."""
        ...
