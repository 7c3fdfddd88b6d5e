"""Settings of the interpreter for a process that only runs a worker: garbage collection and thread switches."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from collections.abc import Iterator

_THRESHOLDS = (50_000, 20, 50)
_SWITCH = 0.0001
"""Seconds after which a thread that waits for the interpreter gets it."""
_lock = threading.Lock()
_before: list[tuple[tuple[int, int, int], float]] = []
"""The settings before each worker that runs in this process; workers in several threads have an entry each."""


@contextlib.contextmanager
def tuned_for_worker() -> Iterator[None]:
    """Collect garbage seldom, and not the objects that exist now; switch threads often. For a process that only runs a worker.

    Attempts make many short-lived objects, and a collection visits every live object: it took a sixth of a busy worker's time.

    The thread that writes to SQLite needs the interpreter for short moments. With the default switch interval it would wait while
    the event loop is busy, and the event loop while a plain handler computes.

    At the end the settings are restored, and all objects are unfrozen, also those that other code had frozen.
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
            else:  # another worker of this process goes on; the first entry has the settings to restore
                _before.pop()
