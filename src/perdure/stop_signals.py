"""SIGINT and SIGTERM, received in a thread of their own: a blocked event loop cannot keep a process from being stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn, Self

from perdure.model.errors import TooManyHung

NUMBERS = (signal.SIGINT, signal.SIGTERM)
UNHEARD = 2.0
"""Seconds after the second signal until the process ends, if its event loop does not answer."""
PATIENCE = 20.0
"""Seconds after the second signal until the process ends, whatever its handlers do."""


class StopSignals:
    """While the context is open, each signal calls `on_signal(number, count)` in the event loop. The process ends at the third,
    and soon after the second if that does not end it. Outside of the main thread it receives nothing: its caller has the signals.

    last_words: called in the thread before the process ends because its event loop is blocked.
    """

    def __init__(self, on_signal: Callable[[int, int], None], *, last_words: Callable[[], None] | None = None) -> None:
        self._on_signal = on_signal
        self._last_words = last_words
        self._received: list[int] = []
        self._heard = False
        self._second_at = 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        if threading.current_thread() is not threading.main_thread():
            return self
        self._ours, self._theirs = socket.socketpair()
        self._theirs.setblocking(False)
        self._before = {number: signal.signal(number, _do_nothing) for number in NUMBERS}
        for number in NUMBERS:
            signal.siginterrupt(number, False)
        self._wakeup_before = signal.set_wakeup_fd(self._theirs.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._listen, name="perdure-signals", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._before:
            return
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._theirs.close()  # ends the thread

    @property
    def received(self) -> list[int]:
        """The numbers of the signals so far."""
        return self._received

    def _listen(self) -> None:
        with self._ours:
            while True:
                self._ours.settimeout(self._time_left())
                try:
                    numbers = self._ours.recv(64)
                except TimeoutError:
                    continue  # `_time_left` has the rest
                except OSError:
                    return
                if not numbers:
                    return
                for number in numbers:
                    self._receive(number)

    def _receive(self, number: int) -> None:
        if number not in NUMBERS:
            if self._wakeup_before >= 0:  # it belongs to the event loop
                with suppress(OSError):
                    os.write(self._wakeup_before, bytes([number]))
            return
        self._received.append(number)
        count = len(self._received)
        if count > 2:
            self._end()
        if count == 2:
            self._second_at = time.monotonic()
        with suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self._call, number, count)

    def _call(self, number: int, count: int) -> None:
        self._heard = count >= 2
        self._on_signal(number, count)

    def _time_left(self) -> float | None:
        """Seconds until the process ends by itself; None while it is not to end."""
        if len(self._received) < 2:
            return None
        passed = time.monotonic() - self._second_at
        if not self._heard and passed >= UNHEARD:
            if self._last_words is not None:
                self._last_words()
            self._end()
        if passed >= PATIENCE:
            self._end()
        return max(0.01, (PATIENCE if self._heard else UNHEARD) - passed)

    def _end(self) -> NoReturn:
        end_process(128 + self._received[-1])


def end_process(code: int) -> NoReturn:
    """End this process though calls of handlers go on in it."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _do_nothing(*_: object) -> None:
    """The signal is read from the socket; without a handler it would end the process."""


def too_many_hung(hung: int) -> TooManyHung:
    """So many calls of this process hang that its worker has stopped."""
    return TooManyHung(
        f"{hung} calls hang in this process: its worker has stopped",
        hint="start another process; the log names the handlers that did not stop",
    )
