"""The queues that a worker serves, in turn."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence

import structlog

from perdure.model.errors import PerdureError
from perdure.model.jobs import ALL_QUEUES
from perdure.store.protocol import LeaseStore

log = structlog.get_logger("perdure.worker")

LOOK = 1.0
"""Seconds after which a worker of all queues that finds work looks for others."""


class Queues:
    """Those that are named; with `*` among them those in which jobs wait, looked for again whenever a round found nothing."""

    def __init__(self, names: Sequence[str], worker_id: str, leases: LeaseStore) -> None:
        self._worker_id = worker_id
        self._leases = leases
        self._all = ALL_QUEUES in names
        self.names: tuple[str, ...] = () if self._all else tuple(names)
        """All of them, as far as they are known."""
        self._due = deque(self.names)
        self._look_at = 0.0

    async def look(self, kinds: Collection[str], *, idle: bool) -> None:
        """Find out which there are, if that is to be found out. idle: the last round found nothing."""
        if not self._all or (not idle and time.monotonic() < self._look_at):
            return
        try:
            found = await self._leases.waiting_queues(kinds)
        except PerdureError as error:
            log.warning("reading the queues failed", worker=self._worker_id, error=str(error))
            return
        self.names = tuple(found)
        due = {name for name, any_due in found.items() if any_due}
        kept = [name for name in self._due if name in due]
        self._due = deque([*kept, *sorted(due.difference(kept))])
        self._look_at = time.monotonic() + LOOK

    def round(self) -> Iterator[str]:
        """Each of them once, but for those that are known to have no due job; the next round begins after the last one that was
        taken."""
        for _ in range(len(self._due)):
            name = self._due[0]
            self._due.rotate(-1)
            yield name
