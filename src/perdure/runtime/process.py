"""The interpreter of a process whose work is to be a worker."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator

_THRESHOLDS = (10_000, 20, 50)
_SWITCH = 0.0005


@contextlib.contextmanager
def devoted() -> Iterator[None]:
    """While this process is a worker and nothing else, collect garbage seldom, and not among what is loaded by now.

    Attempts make many short-lived objects, and a collection looks at every one that lives: a sixth of a busy worker's time
    went into that. Threads take turns after half a millisecond instead of five: SQLite's writer asks for the interpreter
    several times in a transaction. Everything is as it was at the end.
    """
    thresholds, switch = gc.get_threshold(), sys.getswitchinterval()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    sys.setswitchinterval(_SWITCH)
    try:
        yield
    finally:
        sys.setswitchinterval(switch)
        gc.set_threshold(*thresholds)
        gc.unfreeze()
