"""The interpreter of a process whose work is to be a worker."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from collections.abc import Iterator

_THRESHOLDS = (10_000, 20, 50)
_SWITCH = 0.0001
"""Seconds after which a thread that waits for the interpreter gets it."""
_lock = threading.Lock()
_before: list[tuple[tuple[int, int, int], float]] = []
"""How it was before each worker of this process, in threads of their own, that is at work."""


@contextlib.contextmanager
def devoted() -> Iterator[None]:
    """While this process is a worker and nothing else, collect garbage seldom and not among what is loaded by now, and let
    threads take turns often.

    Attempts make many short-lived objects, and a collection looks at every one that lives: a sixth of a busy worker's time
    went into that.

    The thread that writes to SQLite needs the interpreter for moments, and would else stand still for as long as the event loop
    is busy; and the event loop for as long as a plain handler computes.

    Everything is as it was at the end, but that nothing is frozen any more: objects that others had frozen cannot be told apart.
    """
    with _lock:
        if not _before:
            gc.collect()
            gc.freeze()
        _before.append((gc.get_threshold(), sys.getswitchinterval()))
        gc.set_threshold(*_THRESHOLDS)
        sys.setswitchinterval(_SWITCH)
    try:
        yield
    finally:
        with _lock:
            if len(_before) == 1:
                thresholds, interval = _before[0]
                gc.set_threshold(*thresholds)
                sys.setswitchinterval(interval)
                gc.unfreeze()
                _before.clear()
            else:  # another worker of this process goes on; the first entry says how it was
                _before.pop()
