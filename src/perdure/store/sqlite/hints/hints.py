"""Hints between processes that share the file."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from perdure.store.protocol import Listener, Topic
from perdure.store.sqlite.engine.engine import Engine


class SqliteHints:
    """See `protocol.HintStore`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def listen(self, topic: Topic) -> AbstractAsyncContextManager[Listener]:
        """See `protocol.HintStore.listen`."""
        return self._engine.listen(topic)
