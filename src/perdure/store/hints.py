"""Hints within one process: whoever listens is woken, whoever does not loses nothing. The stores feed them from outside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from perdure.store.protocol import Topic


class HintListener:
    """One subscription; several rings between two waits are one wake-up."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wake the waiter, now or at its next wait."""
        self._rung.set()

    async def wait(self, timeout: float) -> bool:
        """See `protocol.Listener.wait`."""
        if not self._rung.is_set():
            try:
                async with asyncio.timeout(timeout):
                    await self._rung.wait()
            except TimeoutError:
                return False
        self._rung.clear()
        return True


class LocalHints:
    """The listeners of one store instance; used from its event loop only."""

    def __init__(self) -> None:
        self._listeners: dict[Topic, set[HintListener]] = {"work": set(), "news": set()}

    def ring(self, topic: Topic) -> None:
        """Wake every listener of the topic in this process."""
        for listener in self._listeners[topic]:
            listener.ring()

    @asynccontextmanager
    async def listen(self, topic: Topic) -> AsyncIterator[HintListener]:
        """Subscribe while the context is open."""
        listener = HintListener()
        self._listeners[topic].add(listener)
        try:
            yield listener
        finally:
            self._listeners[topic].discard(listener)
