"""Threads for plain functions. Nothing can interrupt a plain function, so a worker that stops must not wait for one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class _Call(Future[Any]):
    """A function to be called. Cancelled while it runs, it is lost: it goes on, and what it returns is not wanted."""

    def __init__(
        self, pool: DaemonThreads, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        super().__init__()
        self._pool = pool
        self._call = fn, args, kwargs

    def cancel(self) -> bool:
        """See `Future.cancel`."""
        cancelled = super().cancel()
        if not cancelled and self.running():
            self._pool._lose(self)
        return cancelled

    def run(self) -> None:
        """Call it, in a thread."""
        if self.set_running_or_notify_cancel():
            fn, args, kwargs = self._call
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001  the future carries it to the caller
                self.set_exception(error)
            else:
                self.set_result(result)


class DaemonThreads(Executor):
    """As ThreadPoolExecutor, but of daemon threads: a process can end while functions are still running. A thread whose call is
    lost does not count as one of `max_threads`."""

    def __init__(self, max_threads: int, name: str) -> None:
        self._max_threads = max_threads
        self._name = name
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._started = 0
        self._lost: dict[_Call, float] = {}
        """When each was lost, on the monotonic clock."""
        self._last_begun = self._waits_since = time.monotonic()
        self._closed = False

    def lost(self, before: float) -> int:
        """How many calls that were lost before that time, on the monotonic clock, still run."""
        return sum(at <= before for at in list(self._lost.values())) if self._lost else 0

    @property
    def starved(self) -> float:
        """Seconds for which calls have waited for a thread and none began; 0 where none waits."""
        return time.monotonic() - max(self._last_begun, self._waits_since) if self._calls.qsize() else 0.0

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """See `Executor.submit`."""
        call = _Call(self, fn, args, kwargs)
        with self._lock:
            if self._closed:
                raise RuntimeError("the threads are closed")
            self._calls.put(call)
            if not self._idle.acquire(blocking=False):
                self._start_one()
                if self._calls.qsize() == 1:
                    self._waits_since = time.monotonic()
        return call

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See `Executor.shutdown`."""
        with self._lock:
            self._closed = True
            waiting = list(self._waiting()) if cancel_futures else []
            threads = list(self._threads)
            for _ in threads:
                self._calls.put(None)
        for call in waiting:
            call.cancel()
        if wait:
            for thread in threads:
                thread.join()

    def _start_one(self) -> None:
        """Start a thread, if there may be another one. Called under the lock."""
        if len(self._threads) - len(self._lost) < self._max_threads:
            thread = threading.Thread(target=self._serve, name=f"{self._name}-{self._started}", daemon=True)
            self._started += 1
            self._threads.add(thread)
            thread.start()

    def _lose(self, call: _Call) -> None:
        with self._lock:
            if call in self._lost:
                return
            self._lost[call] = time.monotonic()
            if call.done():  # at this moment: its thread may not have seen it here
                del self._lost[call]
                return
            if self._calls.qsize() and not self._closed:
                self._start_one()

    def _ends_thread(self, call: _Call) -> bool:
        """Called in the thread of a call that has ended: whether there are too many threads now."""
        with self._lock:
            if self._lost.pop(call, None) is None or len(self._threads) - len(self._lost) <= self._max_threads:
                return False
            self._threads.discard(threading.current_thread())
            return True

    def _waiting(self) -> Iterator[_Call]:
        with suppress(Empty):
            while (call := self._calls.get_nowait()) is not None:
                yield call

    def _serve(self) -> None:
        while True:
            try:
                call = self._calls.get_nowait()
            except Empty:
                self._idle.release()
                call = self._calls.get()
            if call is None:
                return
            self._last_begun = time.monotonic()
            call.run()
            if call in self._lost and self._ends_thread(call):
                return
            del call  # its arguments can be freed while the thread is idle
