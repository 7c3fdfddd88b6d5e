"""The open waits of an attempt, and the decision to suspend it.

A wait is a future. When every branch of the handler waits and nothing stirs for a moment, the attempt is suspended: a
timer that ends within the linger is sat out under the lease (WAITING), anything longer parks the job and frees the worker
(PARKED, or WAITING_FOR_APPROVAL while a person is asked).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from perdure.model.approvals import Approval
from perdure.model.errors import LeaseLost, StoreError, Suspended
from perdure.model.jobs import Lease, Outcome
from perdure.model.states import Status
from perdure.store.protocol import Listener, Store

SETTLE = 0.02
"""Seconds without any activity of the context before the attempt counts as waiting: lets parallel branches begin."""

DECISION_POLL = 1.0


class Suspendable(Protocol):
    """What the waits may touch of the run they belong to."""

    store: Store
    lease: Lease
    over: str | None

    @property
    def is_busy(self) -> bool:
        """True while a step or tool runs."""
        ...

    def seconds_until(self, moment: datetime) -> float:
        """Seconds of database time left until a moment."""
        ...

    def stop(self, reason: str, outcome: Outcome | None) -> None:
        """End the attempt."""
        ...

    def lose(self) -> None:
        """The lease is gone."""
        ...


@dataclass(slots=True, eq=False)
class _OpenWait:
    until: datetime | None
    done: asyncio.Future[None]


class Waits:
    """The open waits of one `Run`."""

    def __init__(self, run: Suspendable, *, linger: float) -> None:
        self._run = run
        self._linger = linger
        self._open: dict[str, _OpenWait] = {}
        self._blocked: set[asyncio.Future[None]] = set()
        self._stirred = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None
        self._status_lock = asyncio.Lock()
        self.waiting = False
        """True while the job's status is WAITING."""

    @property
    def any_open(self) -> bool:
        """True while some branch waits for a timer or an answer."""
        return bool(self._open)

    @property
    def any_blocked(self) -> bool:
        """True while some branch is held back by a drain."""
        return bool(self._blocked)

    def stir(self) -> None:
        """Something of this attempt moved: not the moment to suspend."""
        self._stirred.set()

    def close(self) -> None:
        """The attempt is over: whoever still waits gets Suspended."""
        error = Suspended(self._run.over or "finished")
        for future in [w.done for w in self._open.values()] + list(self._blocked):
            if not future.done():
                future.set_exception(error)
                future.exception()  # nobody may be left to see it
        self._stirred.set()
        if self._watcher is not None and self._watcher is not asyncio.current_task():
            self._watcher.cancel()

    async def forever(self) -> None:
        """Hold a branch back until the attempt is over."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._blocked.add(future)
        try:
            await future
        finally:
            self._blocked.discard(future)

    async def until(self, key: str, moment: datetime) -> None:
        """Wait for a moment of database time; returns at once if it has passed."""
        left = self._run.seconds_until(moment)
        if left <= 0:
            return
        async with self._opened(key, moment) as wait:
            timer = self._run.store.clock.call_later(left, _resolve, wait.done)
            try:
                await wait.done
            finally:
                timer.cancel()
        await self.leave_waiting()

    async def decision(self, key: str, approval_id: UUID) -> Approval:
        """Wait until an approval is decided or has expired."""
        store = self._run.store
        # opened first: suspended by another branch's wait while this one still connects, the job must show who is asked
        async with self._opened(key, None), store.hints.listen("news") as news:
            approval = await store.approvals.get_approval(approval_id)
            if approval.pending:
                approval = await self._poll_decision(news, approval_id)
        await self.leave_waiting()
        return approval

    async def _poll_decision(self, news: Listener, approval_id: UUID) -> Approval:
        while True:
            await news.wait(DECISION_POLL)
            if self._run.over is not None:
                raise Suspended(self._run.over)
            approval = await self._run.store.approvals.get_approval(approval_id)
            if not approval.pending:
                return approval

    @contextlib.asynccontextmanager
    async def _opened(self, key: str, until: datetime | None) -> AsyncIterator[_OpenWait]:
        if self._run.over is not None:
            raise Suspended(self._run.over)
        wait = _OpenWait(until, asyncio.get_running_loop().create_future())
        self._open[key] = wait
        self.stir()
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.create_task(self._watch())
        try:
            yield wait
        finally:
            self._open.pop(key, None)
            self.stir()

    async def _watch(self) -> None:
        while self._open and self._run.over is None:
            self._stirred.clear()
            if self._run.is_busy or self.waiting:
                await self._stirred.wait()
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SETTLE):
                    await self._stirred.wait()
                continue
            if self._stirred.is_set():  # in the very moment the time was up
                continue
            try:
                await self._suspend()
            except LeaseLost:
                self._run.lose()
            except StoreError:  # the heartbeat judges whether the lease survives this
                await asyncio.sleep(1)

    async def _suspend(self) -> None:
        timers = [w.until for w in self._open.values() if w.until is not None]
        asks_somebody = len(timers) < len(self._open)
        if not asks_somebody and self._run.seconds_until(min(timers)) <= self._linger:
            async with self._status_lock:
                if self._open and not self._run.is_busy and self._run.over is None:
                    await self._run.store.leases.set_waiting(self._run.lease, True)
                    self.waiting = True
            return
        status = Status.WAITING_FOR_APPROVAL if asks_somebody else Status.PARKED
        self._run.stop("suspended", Outcome(status))

    async def leave_waiting(self) -> None:
        """WAITING back to RUNNING, if it is; called before anything else is written. Raises Suspended if the lease is gone."""
        async with self._status_lock:
            if not self.waiting:
                return
            try:
                await self._run.store.leases.set_waiting(self._run.lease, False)
            except LeaseLost:
                self._run.lose()
                raise Suspended("lease lost") from None
            self.waiting = False
            self.stir()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
