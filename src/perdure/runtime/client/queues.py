"""`client.queues`: what waits in each queue, and their pauses."""

from __future__ import annotations

import builtins
from collections import Counter

from perdure.model.queues import QueueInfo, QueuePause
from perdure.model.states import Status
from perdure.runtime.client.base import ClientPart
from perdure.runtime.validation import check_limit, check_queue, check_text


class Queues(ClientPart):
    """Queues: what waits there, pause and resume."""

    async def list(self) -> builtins.list[QueueInfo]:
        """The queues in which jobs are that have not ended, and those that are paused, by name.

        It costs a look at each job that has not ended; those that have ended are not read.
        """
        store = await self._store()
        pauses = {pause.queue: pause for pause in await store.queues.list_pauses(only_open=True)}
        counts: dict[str, Counter[Status]] = {name: Counter() for name in pauses}
        oldest: dict[str, float] = {}
        for live in (await store.figures.snapshot()).jobs:
            counts.setdefault(live.queue, Counter())[live.status] += live.count
            if live.oldest_ready is not None:
                oldest[live.queue] = max(live.oldest_ready, oldest.get(live.queue, 0.0))
        return [
            QueueInfo(name, {s: counts[name][s] for s in Status if counts[name][s]}, oldest.get(name), pauses.get(name))
            for name in sorted(counts)
        ]

    async def pause(self, queue: str, reason: str | None = None) -> QueuePause:
        """Let no worker claim jobs of this queue until it is resumed; return the pause.

        Jobs that workers hold go on, also the few that they have claimed ahead. Jobs are enqueued, become due, are cancelled and
        expire as always; one that sleeps or waits for an answer goes on after the end of the pause. A queue that is paused
        already stays as it is. Raises InvalidInput.
        """
        scope, name = self._scope, check_queue(queue)
        reason = check_text(reason, "reason", 4000)
        return await (await self._store()).queues.pause_queue(name, by=scope.actor, via=scope.via, reason=reason)

    async def resume(self, queue: str, reason: str | None = None) -> QueuePause | None:
        """Let workers claim jobs of this queue again; return the pause that ended, None if it was not paused. Raises
        InvalidInput."""
        scope, name = self._scope, check_queue(queue)
        reason = check_text(reason, "reason", 4000)
        return await (await self._store()).queues.resume_queue(name, by=scope.actor, via=scope.via, reason=reason)

    async def pauses(self, queue: str | None = None, *, limit: int = 50) -> builtins.list[QueuePause]:
        """The pauses of a queue, or of all, the newest first, also those that have ended. Raises InvalidInput."""
        name = None if queue is None else check_queue(queue)
        return await (await self._store()).queues.list_pauses(queue=name, limit=check_limit(limit))
