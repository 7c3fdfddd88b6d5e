"""Clocks that are wrong: for processes that must not notice."""

from __future__ import annotations

import datetime as dt
import time
import warnings
from typing import Any


def bend_clocks(seconds: float) -> None:
    """From here on every clock of this process that tells the time of day is wrong by so much; monotonic clocks are right.

    What was imported before may hold the right ones: call it first.
    """
    warnings.filterwarnings("ignore", "datetime.datetime size changed")  # compiled modules wonder about the bent class
    real, real_ns = time.time, time.time_ns
    straight = dt.datetime

    class Meta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, straight)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, straight)

    class Bent(straight, metaclass=Meta):  # type: ignore[valid-type,misc]
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Any:
            return straight.now(tz) + dt.timedelta(seconds=seconds)

        @classmethod
        def utcnow(cls) -> Any:
            return straight.now(dt.UTC).replace(tzinfo=None) + dt.timedelta(seconds=seconds)

    time.time = lambda: real() + seconds
    time.time_ns = lambda: real_ns() + int(seconds * 1e9)
    dt.datetime = Bent  # type: ignore[misc]
