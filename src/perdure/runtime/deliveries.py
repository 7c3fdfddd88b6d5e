"""When a worker looks at the mailboxes of agents: what is due, and what an agent that is free again was waiting with."""

from __future__ import annotations

import asyncio
import random
import time

import structlog

from perdure.model.errors import PerdureError
from perdure.runtime.lease import LeaseManager
from perdure.store.protocol import AgentStore, Store

log = structlog.get_logger("perdure.worker")

LOOK_EVERY = 1.0
"""Seconds between two looks of a worker where nothing in its process asks for one."""
MOST_AGENTS = 100
"""Of one look."""
AT_ONCE = 4
"""Deliveries of a look that go on at the same time, each in a transaction of its own."""


class Deliveries:
    """Delivers the messages of agents: each second, when the next one is due, and after a job of an agent has ended here.

    Every worker does so. A look that finds nothing is one read of an index.
    """

    def __init__(self, store: Store, leases: LeaseManager) -> None:
        self._agents = store.agents
        self._leases = leases
        self._next = 0.0

    @property
    def seconds_left(self) -> float:
        """Until the next look."""
        return max(0.0, self._next - time.monotonic())

    async def look_if_due(self) -> bool:
        """Look, if it is time; True if a message was bound."""
        return (self._leases.agent_left or time.monotonic() >= self._next) and await self.look()

    async def look(self) -> bool:
        """Look now; True if a message was bound. An error is logged: the next look finds the same."""
        self._leases.agent_left = False
        self._next = time.monotonic() + LOOK_EVERY * random.uniform(0.75, 1.0)
        try:
            left = await self._agents.next_delivery()
            if left is not None and left > 0:
                self._next = min(self._next, time.monotonic() + left)
            return left == 0 and await deliver_due(self._agents) > 0
        except PerdureError as error:
            log.warning("delivering messages failed", error=str(error))
            return False


async def deliver_due(agents: AgentStore) -> int:
    """Look at the mailboxes that are to be looked at; return how many messages were bound. Raises StoreError."""
    bound = 0
    due = await agents.due_agents(limit=MOST_AGENTS)
    random.shuffle(due)  # so that workers that look at the same moment do not wait for each other one after another
    for first in range(0, len(due), AT_ONCE):
        some = due[first : first + AT_ONCE]
        for found in await asyncio.gather(*map(agents.deliver, some), return_exceptions=True):
            if isinstance(found, BaseException):
                raise found
            bound += found
    return bound
