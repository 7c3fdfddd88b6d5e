"""The manual clock: time stands still until a test moves it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import itertools
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self

from perdure.model.errors import InvalidInput
from perdure.model.timing import Duration
from perdure.runtime.validation import check_moment, check_seconds

sleeper: contextvars.ContextVar[object] = contextvars.ContextVar("perdure_sleeper", default=None)
"""The attempt or call that this code runs in: `ManualClock.asleep` counts sleeps by it."""

BACKGROUND = object()
"""The sleeper of what a worker does besides its attempts: no attempt waits for its sleeps."""

_MILLISECOND = timedelta(milliseconds=1)


class ManualClock:
    """Database time of a `TestApp`, and everything a worker measures by it: leases, sleeps, backoff, approvals' expiry, delayed
    jobs, timeouts and deadlines. It counts whole milliseconds and rounds up.

    start: where it stands at first (timezone-aware), default the present. Raises InvalidInput for a naive start.
    """

    def __init__(self, start: datetime | None = None) -> None:
        began = check_moment(start, "start") or datetime.now(UTC)
        self._began = began.replace(microsecond=began.microsecond // 1000 * 1000)
        self._passed = 0
        self._timers: list[_Timer] = []
        self._numbers = itertools.count()
        self._lock = threading.RLock()
        self.asleep: Counter[object] = Counter()

    def __repr__(self) -> str:
        return f"<ManualClock {self.now().isoformat()}>"

    def now(self) -> datetime:
        """The present, UTC."""
        return self._began + timedelta(milliseconds=self._passed)

    def advance(self, duration: Duration) -> None:
        """Move on by a duration (seconds or text such as "1h"), in one jump: what was due on the way is due now.

        Leases that are not renewed expire; the running workers of a TestApp keep theirs. May be called from any thread, also by
        a fake that pretends to take long. Raises InvalidInput.
        """
        self._move(_milliseconds(check_seconds(duration, "duration")))

    def advance_to(self, moment: datetime) -> None:
        """Move on to a moment (timezone-aware), in one jump. Raises InvalidInput for one that has passed."""
        checked = check_moment(moment, "moment")
        assert checked is not None
        left = -((self.now() - checked) // _MILLISECOND)
        if left < 0:
            raise InvalidInput(f"a clock never goes back: it stands at {self.now().isoformat()}, asked was {moment}")
        self._move(left)

    def next_timer(self) -> datetime | None:
        """When the next timer is due that an attempt waits for."""
        with self._lock:
            due = min((t.due for t in self._timers if not t.cancelled and t.awaited), default=None)
        return None if due is None else self._began + timedelta(milliseconds=due)

    def _move(self, milliseconds: int) -> None:
        due = []
        with self._lock:
            self._passed += milliseconds
            while self._timers and self._timers[0].due <= self._passed:
                due.append(heapq.heappop(self._timers))
        for timer in due:
            timer.fire()

    # -- what the runtime needs of a clock; see `model.timing.Clock` ---------------------------------------------------

    def monotonic(self) -> float:
        """Seconds since it began."""
        return self._passed / 1000

    async def sleep(self, seconds: Duration) -> None:
        """Return when the clock has moved on so far; with this a fake takes its time. While a TestApp runs and all of its
        attempts sleep, it moves the clock itself."""
        length = check_seconds(seconds, "seconds")
        if length == 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_later(length, _resolve, woken)
        timer.awaited = sleeper.get() is not BACKGROUND
        try:
            with self.sleeping():
                await woken
        finally:
            timer.cancel()

    @contextlib.contextmanager
    def sleeping(self) -> Iterator[None]:
        """What runs in here waits for the clock, or for something that waits for it."""
        who = sleeper.get()
        self.asleep[who] += 1
        try:
            yield
        finally:
            self.asleep[who] -= 1
            if not self.asleep[who]:
                del self.asleep[who]

    def call_later(self, seconds: float, callback: Callable[..., Any], *args: Any) -> _Timer:
        """Call back in the running event loop when the clock has moved on so far."""
        with self._lock:
            due = self._passed + _milliseconds(max(0.0, seconds))
            timer = _Timer(due, next(self._numbers), asyncio.get_running_loop(), lambda: callback(*args))
            if due > self._passed:
                heapq.heappush(self._timers, timer)
                return timer
        timer.fire()
        return timer

    def timeout(self, seconds: float | None) -> _Timeout:
        """As `asyncio.timeout`, by this clock."""
        return _Timeout(self, seconds)


class _Timer:
    """A call at a time of the clock, in the loop that asked for it."""

    __slots__ = ("_callback", "_loop", "awaited", "cancelled", "due", "number")

    def __init__(self, due: int, number: int, loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
        self.due = due
        self.number = number
        self.cancelled = False
        self.awaited = True
        self._loop = loop
        self._callback = callback

    def __lt__(self, other: _Timer) -> bool:
        return (self.due, self.number) < (other.due, other.number)

    def cancel(self) -> None:
        """See `model.timing.Timer`."""
        self.cancelled = True

    def fire(self) -> None:
        """Call back soon; from any thread."""
        with contextlib.suppress(RuntimeError):  # its loop is closed: no task waits there any more
            self._loop.call_soon_threadsafe(self._call)

    def _call(self) -> None:
        if not self.cancelled:
            self._callback()


class _Timeout:
    """asyncio's own timeout, which the clock ends when its time is up."""

    def __init__(self, clock: ManualClock, seconds: float | None) -> None:
        self._clock = clock
        self._seconds = seconds
        self._scope = asyncio.timeout(None)
        self._timer: _Timer | None = None

    async def __aenter__(self) -> Self:
        await self._scope.__aenter__()
        if self._seconds is not None:
            self._timer = self._clock.call_later(self._seconds, self._scope.reschedule, 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._scope.__aexit__(kind, error, trace)

    def expired(self) -> bool:
        """See `model.timing.Timeout`."""
        return self._scope.expired()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _milliseconds(seconds: float) -> int:
    return math.ceil(round(seconds * 1_000_000) / 1000)
