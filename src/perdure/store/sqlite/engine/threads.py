"""Blocking calls, off the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable


async def run_in_thread(fn: Callable[[], None]) -> None:
    """Call `fn`, which blocks, in a thread of its own: the threads of the loop's executor may all be busy with handlers."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def answer(error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        error: BaseException | None = None
        try:
            fn()
        except BaseException as raised:  # noqa: BLE001  it belongs to the caller
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed, and with it the caller
            loop.call_soon_threadsafe(answer, error)

    threading.Thread(target=run, name="perdure-sqlite", daemon=True).start()
    await done
