"""Hints between processes that share the database. Part of `protocol.Store`."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

Topic = Literal["work", "news"]
"""Hints: `work` = a job may have become claimable or was asked to stop; `news` = events were committed."""


class Listener(Protocol):
    """Wakes up when a topic is hinted at. Hints are merged, and may be lost: always poll as well."""

    async def wait(self, timeout: float) -> bool:
        """Return True when a hint comes, at once if one came since the last call; False after `timeout` seconds."""
        ...


class HintStore(Protocol):
    """Hints between processes that share the database."""

    def listen(self, topic: Topic) -> AbstractAsyncContextManager[Listener]:
        """Subscribe while the context is open."""
        ...
