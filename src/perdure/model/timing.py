"""Durations, read and shown, and backoff, all in seconds; and the clock that measures waits."""

from __future__ import annotations

import asyncio
import math
import random
import re
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeAlias

Duration: TypeAlias = float | int | str | timedelta
"""Seconds as a number, a timedelta, or text such as `90s`, `15m`, `2h`, `3d`, `250ms`, `1h30m`."""

MAX_DURATION = 100 * 365 * 86400.0

FIRST_MOMENT = datetime(2, 1, 1, tzinfo=UTC)
LAST_MOMENT = datetime(9999, 1, 1, tzinfo=UTC)
"""Between them is every time that a store takes: `datetime` holds it in every time zone."""

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def seconds(value: Duration) -> float:
    """A duration in seconds.

    Raises ValueError for text that is no duration, and for a negative, non-finite or too long one (more than 100 years).
    """
    if isinstance(value, timedelta):
        result = value.total_seconds()
    elif isinstance(value, str):
        result = _parse(value)
    elif isinstance(value, bool):
        raise ValueError("a duration is a number of seconds or text such as '90s', not a bool")
    else:
        try:
            result = float(value)
        except TypeError:
            kind = type(value).__name__
            raise ValueError(f"a duration is a number of seconds or text such as '90s', not a {kind}") from None
        except OverflowError:
            result = math.inf
    if not 0 <= result <= MAX_DURATION:
        raise ValueError(f"a duration must be between 0 seconds and 100 years, got {value!r}")
    return result


def _parse(text: str) -> float:
    compact = text.strip().lower().replace(" ", "")
    parts = _PART.findall(compact)
    if parts and "".join(n + unit for n, unit in parts) == compact:
        return sum(float(n) * _SECONDS[unit] for n, unit in parts)
    try:
        return float(compact)
    except ValueError:
        raise ValueError(f"'{text}' is not a duration; write for example 90s, 15m, 2h, 3d or 1h30m") from None


def span(length: float) -> str:
    """A duration in one or two units: `340ms`, `12s`, `4m02s`, `3h`, `2d`."""
    if length < 1:
        return f"{length * 1000:.0f}ms"
    if length < 10:
        return f"{length:.1f}s".replace(".0s", "s")
    whole = int(length)
    if whole < 60:
        return f"{whole}s"
    if whole < 600:
        return f"{whole // 60}m{whole % 60:02d}s" if whole % 60 else f"{whole // 60}m"
    if whole < 3600:
        return f"{whole // 60}m"
    if whole < 10 * 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m" if whole % 3600 // 60 else f"{whole // 3600}h"
    if whole < 48 * 3600:
        return f"{whole // 3600}h"
    return f"{whole // 86400}d"


def when(moment: datetime | None, now: datetime) -> str:
    """A moment as people read it: `at 2026-11-20 18:00:00 UTC (in 3h)`."""
    if moment is None:
        return "at a time that is not known"
    away = (moment - now).total_seconds()
    distance = f"in {span(away)}" if away > 0 else f"{span(abs(away))} ago"
    return f"at {moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC ({distance})"


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before retry number n (from 0): min(cap, base * multiplier^n), with full jitter.

    base, cap: seconds (numbers or text such as "1s", "5m"). multiplier: at least 1.
    jitter: 1.0 draws evenly from [0, delay] (full jitter), 0.0 waits exactly the delay, values between mix the two.
    Raises ValueError for a base longer than the cap, a multiplier below 1, or a jitter outside of 0 to 1.

    >>> [Backoff(base="1s", cap="1m", jitter=0).delay(retry) for retry in (0, 1, 2, 10)]
    [1.0, 2.0, 4.0, 60.0]
    """

    base: Duration = 1.0
    cap: Duration = 300.0
    multiplier: float = 2.0
    jitter: float = 1.0

    def __post_init__(self) -> None:
        if seconds(self.base) > seconds(self.cap):
            raise ValueError(f"backoff base {self.base!r} is longer than its cap {self.cap!r}")
        if not self.multiplier >= 1:
            raise ValueError(f"backoff multiplier must be at least 1, got {self.multiplier!r}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"backoff jitter must be between 0 and 1, got {self.jitter!r}")

    def ceiling(self, retry: int) -> float:
        """Seconds before any jitter for retry number `retry` (from 0)."""
        base, cap = seconds(self.base), seconds(self.cap)
        try:
            return min(cap, base * self.multiplier**retry)
        except OverflowError:
            return cap

    def delay(self, retry: int, rng: random.Random | None = None) -> float:
        """Seconds to wait before retry number `retry` (from 0), jitter applied."""
        ceiling = self.ceiling(retry)
        draw = (rng or random).random()
        return ceiling * (1 - self.jitter + self.jitter * draw)


class Timer(Protocol):
    """A call that a clock will make."""

    def cancel(self) -> None:
        """Cancel the call, if it was not made yet."""
        ...


class Timeout(AbstractAsyncContextManager[Any], Protocol):
    """As `asyncio.Timeout`: cancels what runs inside it when the time is up, and raises TimeoutError in its place."""

    def expired(self) -> bool:
        """True once the time is up."""
        ...


class Clock(Protocol):
    """How the runtime measures what the database judges by its own time: leases, sleeps, backoff, timeouts. Every store has the
    clock that goes with its database. Real work (polls, settling, drains) is measured by the machine's clock."""

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after that many seconds."""
        ...

    def call_later(self, seconds: float, callback: Callable[..., Any], *args: Any) -> Timer:
        """Call back in the running event loop after that many seconds."""
        ...

    def timeout(self, seconds: float | None) -> Timeout:
        """Limit a block of code to that many seconds; None means no limit."""
        ...


class SettableClock(Clock, Protocol):
    """A clock that tests can set; a store that is given one takes database time from it."""

    def now(self) -> datetime:
        """Database time, UTC, in whole milliseconds."""
        ...


class SystemClock:
    """The machine's clock, as the standard library has it."""

    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(asyncio.sleep)
    timeout = staticmethod(asyncio.timeout)

    def call_later(self, seconds: float, callback: Callable[..., Any], *args: Any) -> Timer:
        """See `Clock.call_later`."""
        return asyncio.get_running_loop().call_later(seconds, callback, *args)


SYSTEM_CLOCK: Clock = SystemClock()
