"""An App in memory, on a manual clock, whose workers run when the test calls for it and stop when there is nothing to do."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType, TracebackType
from typing import Any, Self, cast
from uuid import UUID

from perdure.app import App
from perdure.backend import AppBackend
from perdure.config import SETTINGS, Settings
from perdure.model.agents import NewAgent
from perdure.model.approvals import Approval
from perdure.model.errors import WaitTimeout
from perdure.model.jobs import DEFAULT_QUEUE, Job
from perdure.model.states import Status
from perdure.model.steps import Step, steps_of
from perdure.model.timing import MAX_DURATION, Duration
from perdure.runtime.chores import Chores
from perdure.runtime.client.base import JobId
from perdure.runtime.client.enqueue import EnqueueOptions
from perdure.runtime.registry import Handler, Registry
from perdure.runtime.schedule_firing import Firing
from perdure.runtime.validation import check_seconds
from perdure.runtime.worker import Worker
from perdure.runtime.worker_options import WorkerOptions
from perdure.store.protocol import Store
from perdure.store.protocol.leases import KindLimit
from perdure.testing.attempt_monitor import AttemptMonitor
from perdure.testing.clock import BACKGROUND, ManualClock, sleeper
from perdure.testing.killable_store import KillableStore, KillRule
from perdure.testing.memory_backend import MemoryBackend

SETTLE = 0.02
"""Seconds of real time without any activity before a sleeping attempt counts as asleep: lets parallel branches begin."""

PATIENCE = 5.0
"""Seconds of real time that a claimed job has for its attempt to begin: else its lease was lost before."""

MOST_ATTEMPTS = 10_000
"""In one run; more are taken for jobs that never end."""

_LIVE = tuple(status for status in Status if not status.terminal)


class _Handlers(Registry):
    """The handlers of another App, also those that it will yet get, and those that a test adds to them for itself."""

    def __init__(self, base: Registry) -> None:
        super().__init__()
        self._base = base

    def find(self, name: str) -> Handler[Any, Any] | None:
        return super().find(name) or self._base.find(name)

    @property
    def kinds(self) -> dict[str, int]:
        return {**self._base.kinds, **super().kinds}

    @property
    def limits(self) -> dict[str, KindLimit]:
        return {**self._base.limits, **super().limits}

    @property
    def agents(self) -> dict[str, NewAgent]:
        return {**self._base.agents, **super().agents}

    def __iter__(self) -> Iterator[Handler[Any, Any]]:
        return itertools.chain(self._base, super().__iter__())

    def __len__(self) -> int:
        return len(self._base) + super().__len__()


class _QuietWorker(Worker):
    """Does not log that it starts and stops: a test has one worker for each moment to which the clock is moved."""

    def _log_life(self, event: str, **facts: Any) -> None:
        pass


class MemoryApp(App):
    """See `TestApp`."""

    def __init__(
        self,
        app: App | None = None,
        *,
        clock: ManualClock | None = None,
        stubs: Mapping[str, Callable[..., Any]] | None = None,
        lease: Duration = "30s",
        registry: Registry | None = None,
    ) -> None:
        values: dict[str, Any] = {s.name: s.default for s in SETTINGS} | {"database_url": "memory:"}
        origins = dict.fromkeys(values, "default") | {"database_url": "test"}
        if registry is None and app is not None:
            registry = _Handlers(app.registry)
        super().__init__(settings=Settings(MappingProxyType(values), MappingProxyType(origins)), registry=registry)
        self.clock = clock or ManualClock()
        self.kill_rule: KillRule | None = None
        """Decides when a worker is killed; None: never."""
        self.monitor = AttemptMonitor(self.clock, stubs or {})
        self.backend = self._memory = MemoryBackend(self.clock, self.monitor.invoke, self._wait)
        self._original = app
        self._lease = check_seconds(lease, "lease")
        self._working = threading.Lock()
        self._originals_backend: AppBackend | None = None

    # -- opening and closing -------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._original is not None:
            self._originals_backend = self._original.backend
            self._original.backend = self._memory
        self._memory.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._original is not None and self._originals_backend is not None:
            self._original.backend = self._originals_backend
            self._originals_backend = None
        self._memory.end()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    async def enqueue_as(self, job_id: UUID, job: Handler[Any, Any], input: Any, options: EnqueueOptions) -> None:
        """As `enqueue`, under an id that is given."""
        new = self.jobs.prepared(job, input, options)
        await self.jobs.enqueue_prepared(new._replace(id=job_id), options)

    # -- running -------------------------------------------------------------------------------------------------------

    async def run_until_idle(self, *, advance: bool | Duration = False) -> int:
        """Run a worker, here, until no job is due; return how many attempts it ran.

        advance: True moves the clock on to the next moment at which anything is due (a sleep, a retry, a delayed job, an
        expiry, a deadline, the lease of a killed worker), and so on until nothing will ever be due by itself; a duration lets
        that much time pass, likewise moment by moment, and schedules fire in it. Nothing waits in real time, except for what
        handlers really do. Time that passes inside an attempt (the backoff of a step's own retries, a fake that sleeps on the
        clock) passes in any case.
        Raises AssertionError if that takes more than 10,000 attempts, RuntimeError inside of a handler, InvalidInput.
        """
        until = None if isinstance(advance, bool) else self._after(check_seconds(advance, "advance"))
        return await self._go(advance=advance is not False, until=until)

    async def _wait(self, id: UUID, seconds: float | None) -> Job:
        """See `Jobs.wait`, with the worker that this takes: `timeout` is time of the clock, which is moved on until the job is
        finished. Raises WaitTimeout, also where nothing will ever happen by itself."""
        until = None if seconds is None else self._after(seconds)
        if not await self._wait_for_running_worker(id, until):
            await self._go(advance=True, until=until, job_id=id)
        job = await self.jobs.get(id)
        if job.status.terminal:
            return job
        waits = "".join(f"; it waits for {w.kind} '{w.key}'" for w in job.waits)
        raise WaitTimeout(
            f"job …{job.short_id} {job.kind} is still {job.status} at {self.clock.now().isoformat()}"
            + (", and nothing will ever move it by itself" if until is None else "")
            + waits
        )

    async def _wait_for_running_worker(self, job_id: UUID, until: datetime | None) -> bool:
        """While a worker runs already (another caller waits as well, or a handler is the caller), wait for what it does. True
        where that was enough: the job is finished, or the time is up."""
        async with (await self.open()).hints.listen("news") as news:
            while self._working.locked():
                left = None if until is None else (until - self.clock.now()).total_seconds()
                try:
                    with self.clock.sleeping():
                        async with self.clock.timeout(left):
                            await news.wait(SETTLE)
                except TimeoutError:
                    return True
                if (await self.jobs.get(job_id)).status.terminal:
                    return True
        return False

    def _after(self, seconds: float) -> datetime:
        return self.clock.now() + timedelta(seconds=seconds)

    async def _go(self, *, advance: bool, until: datetime | None, job_id: UUID | None = None) -> int:
        """Run until idle, or until this job is finished."""
        if sleeper.get() is not None:
            raise RuntimeError("this is run by a worker of this TestApp: it cannot run another one inside of that")
        while not self._working.acquire(blocking=False):  # noqa: ASYNC110  a thread may hold it, and it must not block
            await asyncio.sleep(SETTLE)
        before = self.monitor.attempts
        try:
            for _ in range(MOST_ATTEMPTS):
                so_far = self.monitor.attempts
                await self._run_worker(before + MOST_ATTEMPTS)
                if job_id is not None and (await self.jobs.get(job_id)).status.terminal:
                    break
                if self.monitor.attempts > so_far and await self._anything_due():
                    continue  # in a queue that was not served yet
                if not advance or not await self.move_on(until):
                    break
            else:
                raise _endless()
        finally:
            self._working.release()
        return self.monitor.attempts - before

    async def _anything_due(self) -> bool:
        now = self.clock.now()
        return any(moment <= now for moment in await self._moments())

    async def move_on(self, until: datetime | None = None) -> bool:
        """Move the clock to the next moment at which something happens by itself, and return True; False if there is none, or
        if it comes after `until`, and then the clock is moved up to that."""
        now = self.clock.now()
        moments = await self._moments()
        if until is not None:  # without an end there would be no last firing
            moments += [s.next_at for s in await self.schedules.list() if s.next_at is not None]
        later = min((m for m in moments if m > now), default=None)
        if later is not None and (until is None or later <= until):
            self.clock.advance_to(later)
            return True
        if until is not None and until > now:
            self.clock.advance_to(until)
        return False

    async def _run_worker(self, most_attempts: int) -> None:
        """Run a worker until nothing is due, or until the rule kills it."""
        home = await self.open()
        firing = Firing(home, "test")
        while not await firing.make_many():
            pass
        counted = await self.jobs.count(by="queue", status=_LIVE)
        queues = {DEFAULT_QUEUE, *(h.policy.queue for h in self.registry), *counted}
        store = KillableStore(home, self.monitor, self.kill_rule, on_kill=lambda: worker.stop(now=True))
        # it lives as long as it runs, so its leases never run out, however far the clock jumps
        options = WorkerOptions(queues=tuple(sorted(queues)), lease=MAX_DURATION, linger=0.0)
        worker = _QuietWorker(cast("Store", store), self.registry, options, invoke=self.backend.invoke)
        context = contextvars.copy_context()
        context.run(sleeper.set, BACKGROUND)
        working = asyncio.create_task(worker.run(once=True), context=context)
        quiet_since = time.monotonic()
        try:
            while not working.done():
                activity = self.monitor.activity
                await asyncio.wait({working}, timeout=SETTLE)
                if self.monitor.attempts > most_attempts:
                    store.kill()
                elif self.monitor.activity != activity:
                    quiet_since = time.monotonic()
                elif self.monitor.all_sleep and (
                    time.monotonic() - quiet_since > PATIENCE or not self.monitor.begins_soon(options.concurrency)
                ):
                    await self._let_time_pass(home)
        finally:
            self.monitor.starting.clear()
            if not working.done():  # the test itself is cut off
                store.kill()
            await working
            if store.killed:
                await store.expire_leases(self._lease)
        if self.monitor.attempts > most_attempts:
            raise _endless()

    async def _let_time_pass(self, store: Store) -> None:
        """Move the clock to what comes first: a timer inside an attempt, or something that is due in the database, unless the
        worker is about to take that up."""
        now, activity = self.clock.now(), self.monitor.activity
        moments = await self._moments()
        timer = self.clock.next_timer()
        if self.monitor.activity != activity or not self.monitor.all_sleep:
            return  # something happened while we looked
        if not any(moment <= now for moment in moments) and (moments or timer is not None):
            self.clock.advance_to(min([*moments, timer] if timer is not None else moments))
            await Chores(store, "test").run_once()

    async def _moments(self) -> list[datetime]:
        """When something happens by itself to the jobs that this app has handlers for, and to approvals."""
        found: list[datetime | None] = []
        cursor: str | None = None
        while True:
            jobs = await self.jobs.list(status=_LIVE, limit=1000, cursor=cursor)
            for job in jobs.items:
                if self.registry.find(job.kind) is not None:
                    found += [job.due_at, job.deadline, None if job.lease is None else job.lease.expires_at]
            if (cursor := jobs.next_cursor) is None:
                break
        found += [approval.expires_at for approval in await self._pending(None)]
        left = await (await self.open()).agents.next_delivery()
        found.append(None if left is None else self.clock.now() + timedelta(seconds=left))
        return [moment for moment in found if moment is not None]

    # -- looking and deciding ------------------------------------------------------------------------------------------

    async def steps(self, job_id: JobId) -> list[Step]:
        """What a job has recorded and waits for, in order: steps, tools, timers and approvals. Raises JobNotFound."""
        return steps_of(await self.jobs.events(job_id))

    async def approve_pending(self, job_id: JobId | None = None, **decision: Any) -> list[Approval]:
        """Approve whatever is pending, of one job or of all; options as in `Client.approve`. Without `by` the first of its
        assignees decides, where it has some. Raises AssertionError if nothing is pending; the job goes on in the next run."""
        return [await self.approve(a.id, **{**deciding(a), **decision}) for a in await self._surely_pending(job_id)]

    async def deny_pending(self, job_id: JobId | None = None, **decision: Any) -> list[Approval]:
        """As `approve_pending`; options as in `Client.deny`."""
        return [await self.deny(a.id, **{**deciding(a), **decision}) for a in await self._surely_pending(job_id)]

    async def _surely_pending(self, job_id: JobId | None) -> list[Approval]:
        pending = await self._pending(job_id)
        if not pending:
            raise AssertionError("nothing waits for approval" + ("" if job_id is None else f" in job {job_id}"))
        return pending

    async def _pending(self, job_id: JobId | None) -> list[Approval]:
        found: list[Approval] = []
        cursor: str | None = None
        while True:
            page = await self.approvals.list(job_id=job_id, limit=1000, cursor=cursor)
            found += page.items
            if (cursor := page.next_cursor) is None:
                return found


def deciding(approval: Approval) -> dict[str, Any]:
    """Who decides it in a test: the first of its assignees; where it has none, any person."""
    return {"by": approval.assignees[0]} if approval.assignees else {}


def _endless() -> AssertionError:
    return AssertionError(
        f"{MOST_ATTEMPTS:,} turns and no end: some job sleeps or snoozes without end; "
        'say how far to go: run_until_idle(advance="1d")'
    )
