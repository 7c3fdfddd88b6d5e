"""Threads for plain functions. Nothing can interrupt a plain function, so a worker that stops must not wait for one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class _Call:
    future: Future[Any]
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def run(self) -> None:
        if self.future.set_running_or_notify_cancel():
            try:
                result = self.fn(*self.args, **self.kwargs)
            except BaseException as error:  # noqa: BLE001  the future carries it to the caller
                self.future.set_exception(error)
            else:
                self.future.set_result(result)


class DaemonThreads(Executor):
    """As ThreadPoolExecutor, but of daemon threads: a process can end while functions are still running."""

    def __init__(self, max_threads: int, name: str) -> None:
        self._max_threads = max_threads
        self._name = name
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._closed = False

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """See `Executor.submit`."""
        future: Future[R] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the threads are closed")
            self._calls.put(_Call(future, fn, args, kwargs))
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._max_threads:
                name = f"{self._name}-{len(self._threads)}"
                thread = threading.Thread(target=self._serve, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See `Executor.shutdown`."""
        with self._lock:
            self._closed = True
            waiting = list(self._waiting()) if cancel_futures else []
            for _ in self._threads:
                self._calls.put(None)
        for call in waiting:
            call.future.cancel()
        if wait:
            for thread in self._threads:
                thread.join()

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
            call.run()
            del call  # its arguments can be freed while the thread is idle
