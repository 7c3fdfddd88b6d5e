"""Observes the attempts of a test: which run, what they call, and whether all of them sleep on the clock."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from perdure.runtime.context.current_call import current_call
from perdure.runtime.invoke import invoke
from perdure.runtime.registry import call
from perdure.runtime.run import Run
from perdure.testing.clock import ManualClock, sleeper

_REPEATED = r"(\[.*\])?(#\d+)?"


@dataclass(slots=True, eq=False)
class Call:
    """One call of the function of a step or tool: of which job, under which key, by which attempt."""

    job_id: UUID
    key: str
    attempt: int
    returned: bool = False
    value: Any = None


class AttemptMonitor:
    """Calls handlers and their steps for the workers of a test, and keeps a list of these calls.

    stubs: functions called in place of those given to the steps and tools of these names.
    """

    def __init__(self, clock: ManualClock, stubs: Mapping[str, Callable[..., Any]]) -> None:
        self._clock = clock
        self.stubs = dict(stubs)
        self.called_stubs: set[str] = set()
        """The names of those that were called."""
        self.attempts = 0
        """How many have begun."""
        self.calls: list[Call] = []
        """All that began, in order."""
        self.activity = 0
        """A count that grows with each event, so that a test can see whether anything happened."""
        self.writing = 0
        """Claims, and writes of attempts, that are on their way."""
        self.starting: set[UUID] = set()
        """Jobs that were claimed and whose attempts have not begun."""
        self._running: dict[Run, set[Call]] = {}
        """The attempts that run now, and their calls that have not ended."""
        self._call_ended = asyncio.Event()

    async def invoke(self, run: Run, arguments: tuple[Any, ...]) -> Any:
        """See `runtime.run.Invoke`."""
        self.attempts += 1
        self.activity += 1
        self.starting.discard(run.lease.job_id)
        self._running[run] = set()
        run.call = partial(self._call, run)
        sleeper.set(run)
        try:
            return await invoke(run, arguments)
        finally:
            self.activity += 1
            del self._running[run]

    async def _call(
        self, run: Run, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], threads: Executor
    ) -> Any:
        key = current_call().key
        this = Call(run.lease.job_id, key, run.lease.attempt)
        self.calls.append(this)
        self.activity += 1
        unended = self._running.get(run, set())
        unended.add(this)
        sleeper.set(this)
        try:
            this.value = await call(self._fake_of(key) or fn, args, kwargs, threads)
            this.returned = True
            return this.value
        finally:
            sleeper.set(run)  # between two calls the attempt itself sleeps
            unended.discard(this)
            self._call_ended.set()
            self.activity += 1

    def _fake_of(self, key: str) -> Callable[..., Any] | None:
        for name, fake in self.stubs.items():
            if re.fullmatch(re.escape(name) + _REPEATED, key, re.DOTALL):
                self.called_stubs.add(name)
                return fake
        return None

    async def no_calls(self, patience: float) -> None:
        """Wait until none of the functions that were called still runs, for so many seconds of real time at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while any(self._running.values()):
                    self._call_ended = asyncio.Event()
                    await self._call_ended.wait()

    def begins_soon(self, slots: int) -> bool:
        """True where a job that was claimed has one of so many slots for its attempt: it is looked up, or its lease renewed."""
        return bool(self.starting) and len(self._running) < slots

    @property
    def all_sleep(self) -> bool:
        """True where attempts run and nothing but the clock moves any of them on."""
        asleep = self._clock.asleep
        return (
            bool(self._running)
            and not self.writing
            and all(all(asleep[c] for c in calls) and (calls or asleep[run]) for run, calls in self._running.items())
        )
