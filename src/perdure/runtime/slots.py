"""Slots: the tasks in which attempts run.

One task starts attempts one after another for as long as they end without waiting for anything: a task of its own for each would
cost more than such an attempt does. The first that waits keeps this task for itself until it ends, and another task starts the
next ones.

Each attempt has a context of its own, a copy of the worker's: what its handler sets in context variables is seen by what it calls
and starts, and by no other attempt.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from perdure.runtime.lease import LeasedJob
from perdure.runtime.prefetch import Buffer

TURN = 0.002
"""Seconds of attempts that never wait, one after another, before the event loop gets its turn."""

Attempt = Callable[["asyncio.Task[None]", LeasedJob], Coroutine[Any, Any, None]]


class Slots:
    """Runs the jobs of a buffer, `number` at a time.

    attempt: what runs a job, in the task it is given; what it raises ends that task. may_start: False for a job to leave out.
    changed: called when a slot was taken or has become free.
    """

    def __init__(
        self,
        number: int,
        buffer: Buffer,
        attempt: Attempt,
        *,
        may_start: Callable[[LeasedJob], bool],
        changed: Callable[[], None],
    ) -> None:
        self._number = number
        self._buffer = buffer
        self._attempt = attempt
        self._may_start = may_start
        self._changed = changed
        self._context = contextvars.copy_context()
        self._starter: asyncio.Task[None] | None = None
        self.running: dict[asyncio.Task[None], LeasedJob] = {}
        """The jobs that run now, by their task: the one that began first is first."""
        self.abandoned: dict[asyncio.Task[None], LeasedJob] = {}
        """The jobs whose attempt ended without its handler, which goes on."""

    @property
    def free(self) -> bool:
        """Whether another job could run."""
        return len(self.running) < self._number

    def fill(self) -> None:
        """Start jobs, soon, for as long as there are free slots and jobs to start."""
        if self._starter is None and self._buffer.number and self.free:
            # not by the loop's factory of tasks: an eager one would run the jobs here, one within the other
            loop = asyncio.get_running_loop()
            self._starter = asyncio.Task(self._start_jobs(), loop=loop, context=self._context)

    def abandon(self, task: asyncio.Task[None]) -> None:
        """The attempt in this task has ended, though its task goes on: another job may have its slot."""
        leased = self.running.pop(task, None)
        if leased is not None:
            self.abandoned[task] = leased
            self._changed()
            self.fill()

    async def _start_jobs(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            rest = await self._start_until_one_waits(task)
            if rest is not None:
                self._starter = None
                self.fill()
                self._changed()
                await rest
        finally:
            self.running.pop(task, None)
            self.abandoned.pop(task, None)
            if self._starter is task:
                self._starter = None
            self._changed()
        self.fill()

    async def _start_until_one_waits(self, task: asyncio.Task[None]) -> _Rest | None:
        """Run jobs in this task. Returns what is left of the first attempt that waits, None if this task is to start no more."""
        running, buffer, may_start, attempt = self.running, self._buffer, self._may_start, self._attempt
        turn_ends = time.monotonic() + TURN
        while len(running) < self._number and (leased := buffer.take()) is not None:
            if not may_start(leased):
                continue
            now = time.monotonic()
            leased.seconds_buffered, leased.since = now - leased.since, now
            running[task] = leased
            context, coroutine = self._context.copy(), attempt(task, leased)
            try:
                awaited = context.run(coroutine.send, None)
            except StopIteration:
                del running[task]
            else:
                return _Rest(coroutine, context, awaited)
            if task.cancelling():  # by its handler, which returned: the cancellation would hit the next attempt
                break
            if now > turn_ends:
                self._changed()
                await asyncio.sleep(0)
                turn_ends = time.monotonic() + TURN
        return None


class _Rest:
    """What is left of an attempt that waits, to be awaited in its task."""

    __slots__ = ("_awaited", "_context", "_coroutine")

    def __init__(self, coroutine: Coroutine[Any, Any, None], context: contextvars.Context, awaited: Any) -> None:
        self._coroutine = coroutine
        self._context = context
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, None]:
        run, send, throw = self._context.run, self._coroutine.send, self._coroutine.throw
        awaited = self._awaited
        while True:
            error: BaseException | None = None
            try:
                yield awaited
            except BaseException as raised:  # noqa: BLE001  the attempt gets it where it waits
                error = raised
            # outside of the `except`: the attempt handles this error, or none
            try:
                awaited = run(send, None) if error is None else run(throw, error)
            except StopIteration:
                return
