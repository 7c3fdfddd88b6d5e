"""Handlers and assertions that the tests of the testing kit share."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def at_once(seconds: float = 20.0) -> Iterator[None]:
    """Nothing in here waits in real time: what is asked for would take hours."""
    before = time.monotonic()
    yield
    assert time.monotonic() - before < seconds
