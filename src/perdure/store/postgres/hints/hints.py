"""Hints of one tenant."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from perdure.store.postgres.engine.engine import Engine
from perdure.store.protocol import Listener, Topic


class PostgresHints:
    """See `protocol.HintStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._notifier = engine.notifier
        self._tenant_id = tenant_id

    def listen(self, topic: Topic) -> AbstractAsyncContextManager[Listener]:
        """See `protocol.HintStore.listen`."""
        return self._notifier.listen(topic, self._tenant_id)
