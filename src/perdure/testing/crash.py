"""Does a handler survive a crash after each of its records? Run it once for each, and compare."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from perdure.app import App
from perdure.model.approvals import Approval
from perdure.model.ids import uuid7
from perdure.model.jobs import Job
from perdure.model.states import Status
from perdure.model.waits import SIGNAL
from perdure.runtime.client.enqueue import EnqueueOptions
from perdure.runtime.registry import Handler
from perdure.testing.attempt_monitor import AttemptMonitor
from perdure.testing.memory import MemoryApp, deciding

Decide = Callable[[App, Approval], Awaitable[object]]
"""Decides a pending approval in the place of a person: `await app.approve(approval.id, ...)` or `app.deny`."""

_UNTIMELY = frozenset({"node_started"})  # written by the clock on the wall, not by what the handler does
_MOST_TURNS = 10_000

_NAMES = {
    "node_finished": "step '{key}'",
    "step_failed": "a failed call of step '{key}'",
    "tool_called": "the call of tool '{key}'",
    "tool_returned": "the return of tool '{key}'",
    "tool_failed": "the failure of tool '{key}'",
    "wait_started": "the beginning of wait '{key}'",
    "wait_completed": "the end of wait '{key}'",
    "signal_refused": "the refusal of a signal for wait '{key}'",
    "approval_requested": "the request for approval '{key}'",
    "approval_notified": "the message about approval '{key}'",
    "checkpoint_saved": "a checkpoint",
    "usage_recorded": "a record of usage",
    "message_appended": "a message of the conversation",
    "variable_set": "a new value of variable '{key}'",
    "returned": "its end, before that was recorded",
}


@dataclass(frozen=True, slots=True)
class Boundary:
    """A moment at which a crash is worth trying: an event of this type (and key) was committed for the nth time. The type
    `returned` is the handler's end, before that is committed."""

    type: str
    key: str | None
    nth: int = 1

    def __str__(self) -> str:
        said = _NAMES.get(self.type, f"event '{self.type}'").format(key=self.key)
        return said if self.nth == 1 else f"{said} (number {self.nth})"


@dataclass(frozen=True, slots=True)
class CrashReport:
    """A handler that survived: a crash at each of these boundaries, and what every run ended with."""

    kind: str
    boundaries: tuple[Boundary, ...]
    status: Status
    result: Any
    effects: Any = None

    def __str__(self) -> str:
        lines = [f"{self.kind} survives {len(self.boundaries)} crashes, and ends {self.status} every time; right after"]
        return "\n".join(lines + [f"- {boundary}" for boundary in self.boundaries])


class OneCrash:
    """Decides about one job's worker: notes the boundaries it passes, and kills it at one of them."""

    def __init__(self, job_id: UUID, at: Boundary | None) -> None:
        self.passed: list[Boundary] = []
        self.happened = False
        self._job_id = job_id
        self._at = at
        self._counts: Counter[tuple[str, str | None]] = Counter()

    def reached(self, job_id: UUID, type: str, key: str | None) -> bool:
        """See `killable_store.KillRule`."""
        if job_id != self._job_id or type in _UNTIMELY:
            return False
        self._counts[type, key] += 1
        boundary = Boundary(type, key, self._counts[type, key])
        self.passed.append(boundary)
        if boundary != self._at:
            return False
        self.happened = True
        return True


@dataclass(frozen=True, slots=True)
class _Run:
    """What a run of the job leaves to compare."""

    job: Job
    crash: OneCrash
    jobs: dict[str, int]
    recorded: frozenset[str]
    rerun: str | None
    """The key of a step or tool that was called again by an attempt after the one that recorded it."""
    effects: Any


class CrashCheck:
    """Runs a handler again and again, each time on a fresh database."""

    def __init__(
        self,
        fresh: Callable[[], MemoryApp],
        handler: Handler[Any, Any],
        input: Any,
        *,
        decide: Decide | None,
        signals: Mapping[str, Any] | None,
        setup: Callable[[], object] | None,
        effects: Any,
        options: EnqueueOptions,
    ) -> None:
        self._fresh = fresh
        self._handler = handler
        self._input = input
        self._decide = decide or say_yes
        self._signals = signals or {}
        self._setup = setup
        self._effects = effects
        self._options = options
        self._job_id = uuid7()  # of every run: results may hold it, and the keys that tools hand out follow from it

    async def run(self) -> CrashReport:
        """See `TestApp.crash_after_each_step`."""
        __tracebackhide__ = True
        policy = self._handler.policy
        self._handler.policy = replace(policy, on_change="fail")  # no other code will come
        try:
            return await self._run_all()
        finally:
            self._handler.policy = policy

    async def _run_all(self) -> CrashReport:
        __tracebackhide__ = True
        whole = await self._once(None)
        again = await self._once(None)
        if difference := _difference(again, whole, "the second time", "the first time"):
            raise AssertionError(
                f"{self._handler.name} ends differently even when nothing crashes: {difference}. It depends on something "
                "outside of its steps, or its fakes remember former runs: reset them in setup="
            )
        for boundary in whole.crash.passed:
            self._judge(boundary, await self._once(boundary), whole)
        return CrashReport(
            self._handler.name, tuple(whole.crash.passed), whole.job.status, whole.job.result, whole.effects
        )

    def _judge(self, boundary: Boundary, crashed: _Run, whole: _Run) -> None:
        __tracebackhide__ = True
        said = f"{self._handler.name} does not survive a crash right after {boundary}"
        if crashed.rerun is not None:
            raise AssertionError(f"{said}: '{crashed.rerun}' ran again although it was recorded")
        if crashed.job.error_kind == "unknown_outcome" and boundary.type == "tool_called":
            return  # on_unknown="fail" asks for this
        difference = _difference(crashed, whole, "after the crash", "without it")
        if difference:
            raise AssertionError(f"{said}: {difference}. {_cause(crashed.job, whole.job)}")
        if not crashed.crash.happened:
            raise AssertionError(
                f"{self._handler.name} never came to {boundary} in the run that was to crash there: names and order of what "
                "it records must not change from run to run"
            )

    async def _once(self, at: Boundary | None) -> _Run:
        if self._setup is not None:
            self._setup()
        if self._effects is not None:
            self._effects.clear()
        async with self._fresh() as app:
            await app.enqueue_as(self._job_id, self._handler, self._input, self._options)
            crash = app.kill_rule = OneCrash(self._job_id, at)
            job = await self._drive(app, self._job_id)
            recorded: dict[str, int | None] = {}
            for event in await app.jobs.events(job.id):
                if event.type in ("node_finished", "tool_returned"):
                    recorded.setdefault(event.payload["key"], event.attempt)
            return _Run(
                job=job,
                crash=crash,
                jobs=await app.jobs.count(by="kind"),
                recorded=frozenset(recorded),
                rerun=_rerun(app.monitor, job.id, recorded),
                effects=copy.deepcopy(self._effects),
            )

    async def _drive(self, app: MemoryApp, job_id: UUID) -> Job:
        """Run to the end of the job, deciding what is asked and moving the clock where nothing else helps."""
        for _ in range(_MOST_TURNS):
            await app.run_until_idle()
            job = await app.jobs.get(job_id)
            if job.status.terminal:
                return job
            answered = await self._answer(app) | await self._signal(app)
            if not answered and not await app.move_on():
                waits = ", ".join(f"{w.kind} '{w.key}'" for w in job.waits) or "nothing"
                raise AssertionError(f"{self._handler.name} comes to no end: it is {job.status}, and waits for {waits}")
        raise AssertionError(f"{self._handler.name} comes to no end: {_MOST_TURNS:,} times it slept, retried or asked")

    async def _answer(self, app: MemoryApp) -> bool:
        """Have everything decided that a suspended job waits for; False where nothing was to be decided, or was."""
        decided = False
        for approval in (await app.approvals.list(limit=1000)).items:
            if (await app.jobs.get(approval.job_id)).status is not Status.WAITING_FOR_APPROVAL:
                continue  # its worker was killed; the next one may have to notify people first
            if approval.kind == "question":
                await _answer_truly(app, approval)
            else:
                await self._decide(app, approval)
            decided |= not (await app.approvals.get(approval.id)).pending
        return decided

    async def _signal(self, app: MemoryApp) -> bool:
        """Send the signals that suspended jobs wait for; False where a wait has taken none of them."""
        taken = False
        for job in (await app.jobs.list(status=(Status.PARKED, Status.WAITING_FOR_APPROVAL), limit=1000)).items:
            for wait in job.waits:
                key = wait.subject_id
                if wait.kind == SIGNAL.name and wait.answered_at is None and key is not None and key in self._signals:
                    sent = await app.signal(job.id, key, self._signals[key], id=wait.key)
                    taken |= sent.wait_key is not None
        return taken


async def say_yes(app: App, approval: Approval) -> None:
    """Approve it as it was asked, as the first of its assignees."""
    await app.approve(approval.id, **deciding(approval))


async def _answer_truly(app: MemoryApp, question: Approval) -> None:
    """Say what happened to a tool call that the crash cut off: we saw it."""
    calls = [c for c in app.monitor.calls if c.job_id == question.job_id and c.key == question.payload["tool"]]
    happened = bool(calls) and calls[-1].returned
    answer = {"outcome": "happened", "result": calls[-1].value} if happened else {"outcome": "retry"}
    await app.approve(question.id, edited=answer, **deciding(question))


def _rerun(monitor: AttemptMonitor, job_id: UUID, recorded: dict[str, int | None]) -> str | None:
    for call in monitor.calls:
        by = recorded.get(call.key)
        if call.job_id == job_id and by is not None and call.attempt > by:
            return call.key
    return None


def _difference(one: _Run, other: _Run, this: str, that: str) -> str:
    """What differs between two runs, in words; empty where nothing does."""
    if (one.job.status, one.job.error_kind) != (other.job.status, other.job.error_kind):
        return f"{this} it ends {_end(one.job)}, {that} {_end(other.job)}"
    if one.job.result != other.job.result:
        return f"{this} it returns {one.job.result!r}, {that} {other.job.result!r}"
    if odd := sorted(one.recorded ^ other.recorded):
        where = this if odd[0] in one.recorded else that
        return f"'{odd[0]}' is recorded only {where}"
    if one.effects != other.effects:
        return f"{this} its effects are {one.effects!r}, {that} {other.effects!r}"
    if one.jobs != other.jobs:
        return f"{this} there are these jobs: {_listed(one.jobs)}; {that} these: {_listed(other.jobs)}"
    return ""


def _cause(crashed: Job, whole: Job) -> str:
    """Why the end of the crashed one differs, as far as that can be seen from outside."""
    most, used = whole.max_retries or 0, whole.retry_count
    if crashed.status is Status.DEADLETTER and whole.status is not Status.DEADLETTER and used >= most:
        return (
            f"Each crash uses a retry, and there was none left for it: max_retries is {most}, and without a crash this job "
            f"uses {used}. Give the handler more of them, or only this test: "
            f"crash_after_each_step(..., max_retries={used + 1})"
        )
    return (
        "What a handler does outside of ctx.step and ctx.tool is done again by the attempt that goes on after a crash"
    )


def _end(job: Job) -> str:
    return str(job.status) if job.error_message is None else f"{job.status} ({job.error_message})"


def _listed(jobs: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(jobs.items()))
