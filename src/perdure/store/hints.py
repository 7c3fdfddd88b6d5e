"""Hints within one process, by topic and tenant. A missed hint does no harm: listeners poll as well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from perdure.store.protocol import Topic

ANY_TENANT = ""
"""The tenant of listeners whose hints do not name a tenant."""


class HintListener:
    """One subscription. Several hints between two waits wake it once."""

    def __init__(self) -> None:
        self._hinted = asyncio.Event()

    def notify(self) -> None:
        """Wake the waiter, now or at its next wait."""
        self._hinted.set()

    async def wait(self, timeout: float) -> bool:
        """See `protocol.Listener.wait`."""
        if not self._hinted.is_set():
            try:
                async with asyncio.timeout(timeout):
                    await self._hinted.wait()
            except TimeoutError:
                return False
        self._hinted.clear()
        return True


class LocalHints:
    """The listeners of one engine; used from its event loop only."""

    def __init__(self) -> None:
        self._listeners: dict[tuple[Topic, str], set[HintListener]] = {}

    def notify(self, topic: Topic, tenant_id: str = ANY_TENANT) -> None:
        """Wake the listeners of this topic and tenant in this process."""
        for listener in self._listeners.get((topic, tenant_id), ()):
            listener.notify()

    def notify_all(self, topic: Topic) -> None:
        """Wake the listeners of this topic in this process, of all tenants."""
        for (subscribed, _), listeners in self._listeners.items():
            if subscribed == topic:
                for listener in listeners:
                    listener.notify()

    @asynccontextmanager
    async def listen(self, topic: Topic, tenant_id: str = ANY_TENANT) -> AsyncIterator[HintListener]:
        """Subscribe while the context is open."""
        listener = HintListener()
        key = (topic, tenant_id)
        self._listeners.setdefault(key, set()).add(listener)
        try:
            yield listener
        finally:
            self._listeners[key].discard(listener)
            if not self._listeners[key]:
                del self._listeners[key]
