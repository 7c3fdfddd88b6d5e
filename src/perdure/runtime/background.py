"""An event loop in a background thread, and calls into it that block."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from perdure.model.errors import StoreUnreachable

T = TypeVar("T")


class BackgroundLoop:
    """Runs coroutines for any thread. Thread-safe."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="perdure-sync", daemon=True)
        self._thread.start()
        self._process = os.getpid()
        self._closing = threading.Lock()
        self._closed = False

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait for the coroutine and return its result. Raises what it raises, and StoreUnreachable once closed."""
        if self._process != os.getpid():
            coroutine.close()
            raise StoreUnreachable(
                "this client was made before the process was forked, and its thread stayed in the other process",
                hint="make a perdure.sync.Client of its own in each process, after the fork",
            )
        with self._closing:
            if self._closed:
                coroutine.close()
                raise StoreUnreachable("this client is closed")
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except (CancelledError, StoreUnreachable):
            if not self._closed:
                raise
            raise StoreUnreachable("this client was closed by another thread while the call waited") from None

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """The items, each awaited when it is asked for."""

        async def following() -> T | None:
            return await anext(items, None)

        while (item := self.run(following())) is not None:
            yield item

    def close(self, close: Callable[[], Awaitable[None]]) -> None:
        """Run `close` and end the loop; calls that still wait in other threads raise StoreUnreachable. Calling it twice is
        fine."""
        if self._process != os.getpid():
            return
        with self._closing:
            if self._closed:
                return
            self._closed = True
        try:
            asyncio.run_coroutine_threadsafe(self._leave(close), self._loop).result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _leave(self, close: Callable[[], Awaitable[None]]) -> None:
        try:
            await close()
        finally:
            waiting = asyncio.all_tasks() - {asyncio.current_task()}
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            await self._loop.shutdown_asyncgens()
            await close()  # a call that had just begun may have opened the store again
