"""Writes that one attempt makes at the same time, in few transactions.

The store writes one call for each job at a time. So a handler that spawns ten thousand children at once would make as many
transactions, one after the other. Here those that came while another was being written go together into the next.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from perdure.model.effects import Effect
from perdure.model.errors import LeaseLost, StoreUnreachable
from perdure.model.events import NewEvent
from perdure.runtime.lease_times import LeaseTimes
from perdure.store.protocol import Store

MOST_CALLS = 200
"""Of one write."""
MOST_TEXT = 1024 * 1024
"""Characters of one write; a call that brings more goes alone."""
JOINED = frozenset({"patch_state", "send_message", "spawn_job", "spawn_event", "spawn_head"})
"""Effects that may be written together with those of other calls: in the order of the statements they come out as in the order of
the calls."""


class _Call(NamedTuple):
    events: Sequence[NewEvent]
    effects: Sequence[Effect]
    version: asyncio.Future[int]

    @property
    def joins(self) -> bool:
        return all(effect.statement in JOINED for effect in self.effects)

    @property
    def text(self) -> int:
        texts = sum(len(value) for effect in self.effects for value in effect.row.values() if isinstance(value, str))
        return texts + sum(len(event.payload) for event in self.events)


class SharedWrites:
    """The writes of one attempt, in the order in which they are asked for."""

    def __init__(self, store: Store, leased: LeaseTimes) -> None:
        self._clock = store.clock
        self._leases = store.leases
        self._leased = leased
        self._queue: deque[_Call] = deque()
        self._writing = False
        self._task: asyncio.Task[None] | None = None

    async def write(self, events: Sequence[NewEvent], effects: Sequence[Effect]) -> int:
        """`LeaseStore.record`. A caller that is cancelled before its write begins takes it back."""
        if self._writing:
            call = _Call(events, effects, asyncio.get_running_loop().create_future())
            self._queue.append(call)
            return await call.version
        self._writing = True
        try:
            return await self._record(events, effects)
        finally:
            if self._queue:
                self._task = asyncio.get_running_loop().create_task(self._write_queue())
            else:
                self._writing = False

    async def _record(self, events: Sequence[NewEvent], effects: Sequence[Effect]) -> int:
        asked_at = self._clock.monotonic()
        version = await self._leases.record(self._leased.claimed.lease, events, effects=effects)
        self._leased.renewed(asked_at, self._leased.ttl)
        return version

    async def _write_queue(self) -> None:
        calls: list[_Call] = []
        try:
            while calls := self._take():
                await self._write(calls)
        finally:
            self._writing = False
            for call in (*calls, *self._queue):  # where this task was cancelled
                call.version.cancel()
            self._queue.clear()

    def _take(self) -> list[_Call]:
        calls: list[_Call] = []
        text = 0
        while self._queue and len(calls) < MOST_CALLS:
            call = self._queue[0]
            if not call.version.done():
                text += call.text
                if calls and not (call.joins and text <= MOST_TEXT):
                    break
                calls.append(call)
            self._queue.popleft()
            if calls and not calls[-1].joins:
                break
        return calls

    async def _write(self, calls: Sequence[_Call]) -> None:
        events = [event for call in calls for event in call.events]
        effects = [effect for call in calls for effect in call.effects]
        try:
            version = await self._record(events, effects)
        except (LeaseLost, StoreUnreachable) as error:
            _refuse(calls, error)
        except Exception as error:  # noqa: BLE001  it is raised in the caller whose write it is
            if len(calls) == 1:
                _refuse(calls, error)
            else:
                for call in calls:
                    await self._write([call])
        else:
            for call in reversed(calls):
                if not call.version.done():
                    call.version.set_result(version)
                version -= len(call.events)


def _refuse(calls: Sequence[_Call], error: Exception) -> None:
    for call in calls:
        if not call.version.done():
            call.version.set_exception(error)
