"""When a worker looks for held jobs that may go on: jobs whose concurrency key was full."""

from __future__ import annotations

import time

import structlog

from perdure.model.errors import PerdureError
from perdure.runtime.lease import LeaseManager
from perdure.store.protocol import Store

log = structlog.get_logger("perdure.worker")

LOOK_EVERY = 1.0
"""Seconds: also a worker that is always busy looks that often, for slots that other processes have freed."""


class HeldJobs:
    """Releases held jobs: each second, before a claim if a lease with a slot has ended here, and after one that found nothing."""

    def __init__(self, store: Store, leases: LeaseManager) -> None:
        self._store = store
        self._leases = leases
        self._next = 0.0

    async def look_if_due(self) -> None:
        """Look, if a slot became free in this process, or for the first time in a second."""
        if self._leases.slot_freed.is_set() or time.monotonic() >= self._next:
            await self.look()

    async def look(self) -> bool:
        """Look now; True if a claim may find more than before: jobs were released, or a slot became free here.

        An error is logged: the next look finds the same.
        """
        freed = self._leases.slot_freed.is_set()
        self._leases.slot_freed.clear()
        self._next = time.monotonic() + LOOK_EVERY
        try:
            return await self._store.leases.release_held() > 0 or freed
        except PerdureError as error:
            log.warning("looking for held jobs failed", error=str(error))
            return freed
