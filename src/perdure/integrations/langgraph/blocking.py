"""Blocking calls, for graphs that are run by `invoke`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from perdure.integrations.in_handler import Documents, Opens
from perdure.model.errors import InvalidInput
from perdure.runtime.background import BackgroundLoop
from perdure.runtime.context.current_context import handler_loop, running_context

T = TypeVar("T")


class Blocking:
    """What a checkpointer and a store have in common: an app, and an event loop in a thread for blocking calls outside of jobs.
    In a plain handler they are made on the loop of its worker."""

    def __init__(self, app: Opens | None) -> None:
        self._app = app
        self._documents = Documents(app)
        self._lock = threading.Lock()
        self._background: BackgroundLoop | None = None

    def wait(self, call: Coroutine[Any, Any, T]) -> T:
        """What the call returns. Raises InvalidInput in an async handler, whose event loop it would block."""
        loop = handler_loop.get(None)
        if loop is not None:
            return asyncio.run_coroutine_threadsafe(call, loop).result()
        if running_context.get(None) is not None:
            call.close()
            raise InvalidInput("this call would block the worker of an async handler", hint="await graph.ainvoke(...)")
        with self._lock:
            if self._background is None:
                self._background = BackgroundLoop()
            background = self._background
        return background.run(call)

    def close(self) -> None:
        """End the thread of the blocking calls, if there is one, and close the store that it opened. The app stays open."""
        with self._lock:
            background, self._background = self._background, None
        if background is not None:
            background.close(self._close_app)

    async def _close_app(self) -> None:
        close = getattr(self._app, "close", None)  # a client has none
        if close is not None:
            await close()


class Closing:
    """A context manager that closes at its end."""

    _blocking: Blocking

    def close(self) -> None:
        """End the thread that blocking calls outside of jobs have started, and close its connections. The app stays open."""
        self._blocking.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
