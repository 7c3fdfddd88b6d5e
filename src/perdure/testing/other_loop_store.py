"""The store as users in another event loop see it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from perdure.store.protocol import Store, Topic


class OtherLoopStore:
    """A store for users in another event loop than its own: they get no hints, so they poll; and they cannot close it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def hints(self) -> Any:
        """Hints that never come."""
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @asynccontextmanager
    async def listen(self, topic: Topic) -> AsyncIterator[SilentListener]:  # noqa: ARG002  no topic gives hints
        """See `protocol.HintStore.listen`."""
        yield SilentListener()

    async def close(self) -> None:
        """Leave it open for the others."""


class SilentListener:
    """A listener that gets no hint."""

    async def wait(self, timeout: float) -> bool:
        """See `protocol.Listener.wait`."""
        await asyncio.sleep(min(timeout, 0.05))
        return False
