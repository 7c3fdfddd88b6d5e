"""The queues that a worker serves, in turn."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence

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
        self._all = ALL_QUEUES in names
        self._names: deque[str] = deque() if self._all else deque(names)
        self._leases = leases
        self._look_at = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, as far as they are known."""
        return tuple(self._names)

    async def look(self, *, idle: bool) -> None:
        """Find out which there are, if that is to be found out. idle: the last round found nothing."""
        if not self._all or (not idle and time.monotonic() < self._look_at):
            return
        try:
            found = set(await self._leases.waiting_queues())
        except PerdureError as error:
            log.warning("reading the queues failed", worker=self._worker_id, error=str(error))
            return
        known = [name for name in self._names if name in found]
        self._names = deque([*known, *sorted(found.difference(known))])
        self._look_at = time.monotonic() + LOOK

    def round(self) -> Iterator[str]:
        """Each of them once; the next round begins after the last one that was taken."""
        for _ in range(len(self._names)):
            name = self._names[0]
            self._names.rotate(-1)
            yield name
