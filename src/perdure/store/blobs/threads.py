"""Blocking work on files, in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from threading import Event
from typing import TypeVar

T = TypeVar("T")


class Stopped(Exception):
    """Nothing waits for this work any more."""


async def in_thread(work: Callable[[Event], T]) -> T:
    """Do this work in a thread. A caller that is cancelled waits until the work has ended: files that it closes then are in use
    nowhere. The event asks for that."""
    stop = Event()
    running = asyncio.ensure_future(asyncio.to_thread(work, stop))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({running})
        running.exception()
        raise


def until_stopped(pieces: Iterable[bytes], stop: Event) -> Iterator[bytes]:
    """The pieces, until the event is set. Raises Stopped then."""
    for piece in pieces:
        if stop.is_set():
            raise Stopped
        yield piece
