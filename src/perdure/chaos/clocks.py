"""Wrong clocks, for processes that must work all the same."""

from __future__ import annotations

import datetime as dt
import time
import warnings
from typing import Any


def skew_clocks(seconds: float) -> None:
    """From now on every wall clock of this process is wrong by so many seconds; monotonic clocks are right.

    Modules imported before may keep the right clocks: call it first.
    """
    warnings.filterwarnings(
        "ignore", "datetime.datetime size changed"
    )  # compiled modules warn about the replaced class
    real, real_ns = time.time, time.time_ns
    real_datetime = dt.datetime

    class Meta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, real_datetime)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, real_datetime)

    class SkewedDatetime(real_datetime, metaclass=Meta):  # type: ignore[valid-type,misc]
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Any:
            return real_datetime.now(tz) + dt.timedelta(seconds=seconds)

        @classmethod
        def utcnow(cls) -> Any:
            return real_datetime.now(dt.UTC).replace(tzinfo=None) + dt.timedelta(seconds=seconds)

    time.time = lambda: real() + seconds
    time.time_ns = lambda: real_ns() + int(seconds * 1e9)
    dt.datetime = SkewedDatetime  # type: ignore[misc]
