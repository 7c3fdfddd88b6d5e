"""What a worker looks for besides due jobs: held jobs that may go on, and messages that are due."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import structlog

from perdure.model.errors import PerdureError
from perdure.runtime.deliveries import Deliveries
from perdure.runtime.held_jobs import HeldJobs
from perdure.runtime.lease import LeaseManager
from perdure.runtime.registry import Registry
from perdure.store.protocol import Store
from perdure.store.protocol.leases import KindLimit

log = structlog.get_logger("perdure.worker")


class Looks:
    """The looks of one worker."""

    def __init__(self, store: Store, leases: LeaseManager, registry: Registry) -> None:
        self._store = store
        self._agents = [*registry.agents.values()]
        self._rates = [*rates_of(registry)]
        self._held = HeldJobs(store, leases)
        self._deliveries = Deliveries(store, leases)

    async def look_if_due(self) -> None:
        """Before a claim: what it is time for. Before the first one, the agents of its handlers are created, and the rates of
        their keys are stored."""
        if self._agents:
            await self._create_agents()
        if self._rates:
            await self._say_rates()
        await self._held.look_if_due()
        await self._deliveries.look_if_due()

    async def look(self, *, until_idle: bool) -> bool:
        """After a claim that found nothing; True if there may be something to claim now. until_idle: whatever the time."""
        released = await self._held.look()
        delivered = await (self._deliveries.look() if until_idle else self._deliveries.look_if_due())
        return released or delivered

    async def next_due(
        self, queues: Sequence[str], kinds: Collection[str], limits: Mapping[str, KindLimit]
    ) -> float | None:
        """Seconds until the next job or the next look is due; None: neither is in sight. Raises StoreError."""
        due = await self._store.leases.next_due(queues, kinds, limits)
        return min(self._deliveries.seconds_left, float("inf") if due is None else due)

    async def _create_agents(self) -> None:
        try:
            while self._agents:
                await self._store.agents.create_agent(self._agents[-1])
                self._agents.pop()
        except PerdureError as error:
            log.warning("creating an agent failed", agent=self._agents[-1].id, error=str(error))

    async def _say_rates(self) -> None:
        try:
            while self._rates:
                await self._store.limits.say_rate(*self._rates[-1])
                self._rates.pop()
        except PerdureError as error:
            log.warning("storing the rate of a key failed", key=self._rates[-1][0], error=str(error))


def rates_of(registry: Registry) -> Iterator[tuple[str, int]]:
    """The keys of handlers that are the same for all of their jobs, with their rates."""
    for handler in registry:
        limit, rate = handler.policy.limit(handler.name), handler.policy.max_per_minute
        if limit is not None and limit.key is not None and rate is not None:
            yield limit.key, rate
