"""The open waits of an attempt, and the decision to suspend it.

When every branch of the handler waits and nothing else happens for a moment, the attempt is suspended. If the first of the waits
ends within the linger, the worker keeps the lease until then (WAITING). Otherwise it gives the lease up (PARKED, or
WAITING_FOR_APPROVAL while a person is asked), and the database makes the job due when it is time or an answer comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

from perdure.model.effects import Effect
from perdure.model.errors import LeaseLost, StoreError, Suspended
from perdure.model.events import NewEvent
from perdure.model.jobs import Lease, Outcome, Wait
from perdure.model.states import Status
from perdure.model.waits import WaitKind, suspended_status
from perdure.runtime.history import History
from perdure.runtime.unasked_waits import as_recorded, unasked_waits
from perdure.store.protocol import Store

SETTLE = 0.02
"""Seconds without any activity of the context before the attempt counts as waiting, so that parallel branches can begin."""

POLL = 1.0
"""Seconds between two reads of the row of a wait, where no hint comes."""

A = TypeVar("A")


class Suspendable(Protocol):
    """What the waits use of the `Run` that they belong to."""

    store: Store
    lease: Lease
    history: History
    stop_reason: str | None

    def busy(self) -> AbstractContextManager[None]:
        """While it is entered, the attempt is not suspended."""
        ...

    @property
    def is_busy(self) -> bool:
        """True while a step or tool runs."""
        ...

    def seconds_until(self, moment: datetime) -> float:
        """Seconds of database time left until a moment."""
        ...

    async def record(self, events: Sequence[NewEvent], *effects: Effect) -> int:
        """Write to the log under the lease."""
        ...

    def stop(self, reason: str, outcome: Outcome | None) -> None:
        """End the attempt."""
        ...

    def lease_lost(self) -> None:
        """The lease is gone."""
        ...


@dataclass(slots=True, eq=False)
class _OpenWait:
    kind: WaitKind[Store, object]
    until: datetime | None
    done: asyncio.Future[None]


class Waits:
    """The open waits of one `Run`."""

    def __init__(self, run: Suspendable, *, linger: float) -> None:
        self._run = run
        self._linger = linger
        self._open: dict[tuple[str, str], _OpenWait] = {}
        self._blocked: set[asyncio.Future[None]] = set()
        self._activity = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None
        self._status_lock = asyncio.Lock()
        self.waiting = False
        """True while the job's status is WAITING."""

    @property
    def any_open(self) -> bool:
        """True while some branch waits for a timer or an answer."""
        return bool(self._open)

    @property
    def number(self) -> int:
        """How many branches wait for a timer or an answer."""
        return len(self._open)

    @property
    def any_blocked(self) -> bool:
        """True while a branch is blocked because the worker stops."""
        return bool(self._blocked)

    def note_activity(self) -> None:
        """Something happened in this attempt: it is not suspended for a moment."""
        self._activity.set()

    def close(self) -> None:
        """The attempt has ended: each branch that waits gets Suspended."""
        error = Suspended(self._run.stop_reason or "finished")
        for future in [w.done for w in self._open.values()] + list(self._blocked):
            if not future.done():
                future.set_exception(error)
                future.exception()  # marks it as seen: the branch may be gone
        self._activity.set()
        if self._watcher is not None and self._watcher is not asyncio.current_task():
            self._watcher.cancel()

    async def until_stopped(self) -> None:
        """Block a branch until the attempt has ended."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._blocked.add(future)
        try:
            await future
        finally:
            self._blocked.discard(future)

    async def answer(self, kind: WaitKind[Store, A], wait: Wait) -> A | None:
        """Wait for the answer to a wait whose row is open; None once its time has come without one."""
        if not kind.answerable:
            await self._time(kind, wait)
            return None
        async with self._opened(kind, wait):
            # the answer may be older than this attempt, or than the row of the wait
            answer = await self._read(kind, self._run.history.rows.get((wait.kind, wait.key), wait))
            if answer is None and not self._is_late(wait):
                answer = await self._poll(kind, wait)
        await self.leave_waiting()
        return answer

    async def _time(self, kind: WaitKind[Store, object], wait: Wait) -> None:
        left = 0.0 if wait.until is None else self._run.seconds_until(wait.until)
        row = self._run.history.rows.get((wait.kind, wait.key))
        if left <= 0 or (row is not None and row.answered_at is not None):
            return
        async with self._opened(kind, wait) as opened:
            timer = self._run.store.clock.call_later(left, _resolve, opened.done)
            try:
                await opened.done
            finally:
                timer.cancel()
        await self.leave_waiting()

    async def _poll(self, kind: WaitKind[Store, A], wait: Wait) -> A | None:
        store = self._run.store
        async with store.hints.listen("news") as news:
            while True:
                row = await store.leases.read_wait(self._run.lease, wait.kind, wait.key)
                late = self._is_late(wait)
                if late or (row is not None and row.answered_at is not None):
                    answer = await self._read(kind, row or wait)
                    if late or answer is not None:
                        return answer
                left = POLL if wait.until is None else self._run.seconds_until(wait.until)
                await news.wait(min(POLL, max(left, 0.0)))
                if self._run.stop_reason is not None:
                    raise Suspended(self._run.stop_reason)

    async def _read(self, kind: WaitKind[Store, A], wait: Wait) -> A | None:
        with self._run.busy():  # the attempt is not suspended meanwhile
            return await kind.answer(self._run.store, self._run.lease.job_id, wait)

    def _is_late(self, wait: Wait) -> bool:
        return wait.until is not None and self._run.seconds_until(wait.until) <= 0

    @contextlib.asynccontextmanager
    async def _opened(self, kind: WaitKind[Store, object], wait: Wait) -> AsyncIterator[_OpenWait]:
        if self._run.stop_reason is not None:
            raise Suspended(self._run.stop_reason)
        opened = _OpenWait(kind, wait.until, asyncio.get_running_loop().create_future())
        self._open[wait.kind, wait.key] = opened
        self.note_activity()
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.create_task(self._watch())
        try:
            yield opened
        finally:
            self._open.pop((wait.kind, wait.key), None)
            self.note_activity()

    async def _watch(self) -> None:
        while self._open and self._run.stop_reason is None:
            self._activity.clear()
            if self._run.is_busy or self.waiting:
                await self._activity.wait()
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SETTLE):
                    await self._activity.wait()
                continue
            if self._activity.is_set():  # it was set as the time was up
                continue
            try:
                await self._suspend()
            except LeaseLost:
                self._run.lease_lost()
            except Suspended:
                return
            except StoreError:  # it is repeated; if the lease expires meanwhile, the attempt is stopped for that
                await asyncio.sleep(1)

    async def _suspend(self) -> None:
        status = suspended_status(wait.kind for wait in self._open.values())
        times = [wait.until for wait in self._open.values() if wait.until is not None]
        if status is Status.PARKED and times and self._run.seconds_until(min(times)) <= self._linger:
            async with self._status_lock:
                if self._open and not self._run.is_busy and self._run.stop_reason is None:
                    await self._run.store.leases.set_waiting(self._run.lease, True)
                    self.waiting = True
            return
        unasked = unasked_waits(self._run.history, self._open, self._is_late)
        if unasked:
            await self._record(unasked)
            return  # a branch may have gone on meanwhile
        self._run.stop("suspended", Outcome(status))

    async def _record(self, waits: Sequence[Wait]) -> None:
        """Record the answers of waits that are not asked for; if they are, later in this attempt, they are found."""
        run = self._run
        with run.busy():
            ends = [await as_recorded(run.store, run.lease.job_id, wait) for wait in waits]
            events = [NewEvent("wait_completed", json.dumps(payload)) for payload, _ in ends]
            await run.record(events, *(effect for _, effects in ends for effect in effects))
            for wait, (payload, _) in zip(waits, ends, strict=True):
                del run.history.rows[wait.kind, wait.key]
                run.history.answers[wait.kind, wait.key] = payload

    async def leave_waiting(self) -> None:
        """Make the job RUNNING again if it is WAITING, before anything else is written. Raises Suspended if the lease is lost."""
        async with self._status_lock:
            if not self.waiting:
                return
            try:
                await self._run.store.leases.set_waiting(self._run.lease, False)
            except LeaseLost:
                self._run.lease_lost()
                raise Suspended("lease lost") from None
            self.waiting = False
            self.note_activity()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
