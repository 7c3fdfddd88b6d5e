"""Children from inside a job: spawning them, and waiting for their ends without a slot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Generic, TypeAlias, TypedDict, TypeVar, cast
from uuid import UUID

from perdure.model.budgets import Budget
from perdure.model.children import ChildState
from perdure.model.effects import await_jobs, begin_log, close_wait, open_wait, settle_wait, spawn_job
from perdure.model.errors import (
    ChildCancelled,
    ChildError,
    ChildFailed,
    InvalidInput,
    JobPruned,
    StepChanged,
    WaitCircle,
)
from perdure.model.events import NewEvent
from perdure.model.ids import hash_json, short_id
from perdure.model.jobs import NewJob, Wait
from perdure.model.states import Status
from perdure.model.timing import Duration
from perdure.model.waits import CHILD, opened_wait
from perdure.runtime import codec
from perdure.runtime.client.backend import OpenStore
from perdure.runtime.client.base import Scope
from perdure.runtime.client.enqueue import EnqueueOptions, JobEnqueue
from perdure.runtime.context.budget import ledger_of
from perdure.runtime.context.changed_code import refuse
from perdure.runtime.context.options import CallOptions
from perdure.runtime.context.waits import recorded_answer
from perdure.runtime.handle import Handle
from perdure.runtime.registry import Handler, Registry
from perdure.runtime.run import Run
from perdure.store.errors import job_not_found

O_co = TypeVar("O_co", covariant=True)

SPAWN = "spawn"
"""The kind of the call, for its key."""


class ChildHandle(Generic[O_co]):
    """A child: what `spawn` returns. id: of its job. kind: the name of its handler. key: of the call that spawned it."""

    def __init__(self, id: UUID, kind: str, key: str, output_type: Any = None) -> None:
        self.id = id
        self.kind = kind
        self.key = key
        self.output_type = output_type

    def __repr__(self) -> str:
        return f"<ChildHandle {self.key} …{short_id(self.id)}>"


Awaitable: TypeAlias = "ChildHandle[Any] | Handle[Any] | UUID"
"""What can be waited for: a child, or the id of any job that has a parent."""


def id_of(child: Awaitable) -> UUID:
    """Its id. Raises InvalidInput for anything else."""
    if isinstance(child, UUID):
        return child
    if isinstance(child, ChildHandle | Handle):
        return child.id
    raise InvalidInput(
        f"only children can be waited for, got {child!r:.200}", hint="child = await ctx.spawn(handler, input)"
    )


class SpawnOptions(TypedDict, total=False):
    """How a child is stored: as in `EnqueueOptions`. It has no idempotency key: it is stored once under the key of its call.
    deadline: the earlier of this and the parent's. budget: a part of the parent's, by default half of what is left of it."""

    queue: str
    priority: int
    max_retries: int
    delay: Duration
    run_at: datetime
    deadline: datetime
    goal: str
    concurrency_key: str
    max_concurrent: int
    max_per_minute: int
    budget: Budget
    tags: Sequence[str]
    elsewhere: bool


def checked(run: Run, job: Handler[Any, Any] | str, input: Any, options: SpawnOptions) -> tuple[NewJob, Any]:
    """The job that these would store, and the type of its result. Raises as `Jobs.enqueue`."""
    if "idempotency_key" in options or "unique" in options:
        raise InvalidInput(
            "a child has no idempotency key and no unique key",
            hint="it is stored once under the key of its call: key=...",
        )
    scope = _scope(run)
    handler = job if isinstance(job, Handler) else scope.registry.find(job)
    new = JobEnqueue(scope).prepared(job, input, cast("EnqueueOptions", options))
    return new, None if handler is None else handler.output_type


def rate_of(run: Run, job: Handler[Any, Any] | str, options: SpawnOptions) -> int | None:
    """How many jobs of the key of such a child start in any minute, as the options or its handler say."""
    scope = _scope(run)
    handler = job if isinstance(job, Handler) else scope.registry.find(job)
    if "max_per_minute" not in options and (handler is None or handler.policy.max_per_minute is None):
        return None  # without checking the options once more
    return JobEnqueue(scope).rate_of(job, cast("EnqueueOptions", options))


def _scope(run: Run) -> Scope:
    name = f"{run.claimed.kind} …{short_id(run.claimed.id)}"
    return Scope(OpenStore(run.store), run.registry or Registry(), name, "job")


def _digest(job: NewJob) -> str:
    return hash_json(f"[{json.dumps(job.kind)},{job.payload}]")


def is_spawned(run: Run, options: CallOptions, key: str, asked: NewJob) -> bool:
    """Whether an earlier attempt has stored the child of this key, and no other takes its place."""
    recorded = run.history.spawned.get(key)
    return recorded is not None and (options.on_change != "rerun" or recorded["digest"] == _digest(asked))


async def spawn(
    run: Run,
    options: CallOptions,
    key: str,
    new: NewJob,
    *,
    compared: NewJob | None = None,
    budget: Budget | None = None,
    granted: str = "",
    per_minute: int | None = None,
) -> UUID:
    """Store this job as a child, once under this key; returns its id. compared: what is compared with the record, the job itself
    unless given. granted: what `tool_gate.admit` says. per_minute: the rate of its concurrency key, which is said before the
    child is stored. Raises StepChanged."""
    digest = _digest(compared or new)
    recorded = run.history.spawned.get(key)
    if recorded is not None and recorded["digest"] != digest and options.on_change not in ("keep", "rerun"):
        changed = StepChanged(
            f"child '{key}' was spawned with another handler or input than now",
            hint='give it another name, or call it with options(on_change="rerun") or options(on_change="keep")',
        )
        await refuse(run, options.on_change, SPAWN, key, changed)
    if recorded is not None and (recorded["digest"] == digest or options.on_change == "keep"):
        return UUID(recorded["child"])
    child = new._replace(deadline=_earlier(new.deadline, run.claimed.deadline))
    payload: dict[str, Any] = {"key": key, "kind": new.kind, "child": str(new.id), "digest": digest}
    payload |= json.loads(f"{{{granted.rstrip(',')}}}")
    events, effects, stored = list[NewEvent](), [spawn_job(child)], None if budget is None else budget.as_json()
    ledger = ledger_of(run)
    if ledger is not None:
        await ledger.admit_child(key)
        effects += ledger.child_admitted(key)
    if ledger is not None and ledger.has_own:
        handler = None if run.registry is None else run.registry.find(new.kind)
        share = await ledger.share(key, new.id, budget, None if handler is None else handler.policy.budget)
        payload["budget"], stored, events = share.amounts.as_json(), share.stored, share.first
    first = [] if stored is None else [NewEvent("budget_set", json.dumps({"budget": stored, "by": "parent"}))]
    if ledger is not None:
        first += ledger.events_of_child()
    if run.history.approval_context is not None:
        context = {"context": run.history.approval_context, "by": "parent"}
        first.append(NewEvent("approval_context_set", json.dumps(context, ensure_ascii=False)))
    effects += begin_log(new.id, first)
    if per_minute is not None and new.concurrency_key is not None:
        await run.store.limits.say_rate(new.concurrency_key, per_minute)
    await run.record([*events, NewEvent("child_spawned", json.dumps(payload))], *effects)
    return child.id


async def wait_for_all(run: Run, options: CallOptions, key: str, ids: Sequence[UUID]) -> list[ChildState]:
    """Wait under this key until all of these have ended; returns them in their order. Raises WaitCircle, InvalidInput for a job
    that has no parent, JobNotFound, StepChanged."""
    subject = str(ids[0]) if len(ids) == 1 else f"{len(ids)} jobs {hash_json(json.dumps([str(id) for id in ids]))[:16]}"
    done = recorded_answer(run, CHILD, key)
    before = run.history.waits.get((CHILD.name, key))
    known = None if before is None else opened_wait("wait_started", before.payload.get)
    was = done.get("subject") if done is not None else None if known is None else known.subject_id
    if was not in (None, subject) and options.on_change not in ("keep", "rerun"):
        changed = StepChanged(f"'{key}' was recorded as a wait for other children than now", hint="give it another key")
        await refuse(run, options.on_change, CHILD.name, key, changed)
    states = await _read(run, ids)
    if done is not None and all(state.status.terminal for state in states):
        return states
    if any(not state.status.terminal for state in states):
        if known is None or was != subject or (CHILD.name, key) not in run.history.rows:
            await _check_waitable(run, states)
            await _open(run, key, subject, ids, announce=was != subject)
        elif run.history.rows[CHILD.name, key].answered_at is None:
            await _settle(run, key, ids)  # the attempt that opened it may have ended before it did this
        while any(not state.status.terminal for state in states):
            await run.waits.answer(CHILD, Wait(key, CHILD.name, None, subject))
            states = await _read(run, ids)
            if any(not state.status.terminal for state in states):  # the answer was written by hand
                await run.record((), close_wait(CHILD.name, key))
                await _open(run, key, subject, ids, announce=False)
    elif was != subject:
        await run.record([_started(key, subject)])
    payload = {"key": key, "kind": CHILD.name, "subject": subject}
    settled = await _settled_budgets(run, ids)
    await run.record([*settled, NewEvent("wait_completed", json.dumps(payload))], close_wait(CHILD.name, key))
    run.history.rows.pop((CHILD.name, key), None)
    return states


async def _settled_budgets(run: Run, ids: Sequence[UUID]) -> list[NewEvent]:
    """What children that have ended used of this job's budget."""
    ledger = ledger_of(run)
    return [] if ledger is None else await ledger.settle(ids)


async def begin_wait(run: Run, key: str, id: UUID) -> Wait:
    """Open a wait for the end of one child under this key, or find the one that an earlier attempt opened. Raises as
    `wait_for_all`."""
    subject, row = str(id), run.history.rows.get((CHILD.name, key))
    known = (CHILD.name, key) in run.history.waits
    if row is None:
        await _check_waitable(run, await _read(run, [id]))
        await _open(run, key, subject, [id], announce=not known)
    elif row.answered_at is None:
        await _settle(run, key, [id])  # the attempt that opened it may have ended before it did this
    return Wait(key, CHILD.name, None, subject)


async def ended(run: Run, id: UUID) -> ChildState:
    """A child whose end was waited for. Raises JobNotFound, JobPruned."""
    [state] = await _read(run, [id])
    if events := await _settled_budgets(run, [id]):
        await run.record(events)
    return state


def result_of(child: ChildState, annotation: Any) -> Any:
    """What it returned, typed. Raises ChildFailed, ChildCancelled."""
    if child.status is Status.COMPLETED:
        what = f"the result of child …{short_id(child.id)} {child.kind}"
        return codec.decode("null" if child.result is None else child.result, annotation, what)
    raise _error_of(child)


def _error_of(child: ChildState) -> ChildError:
    if child.status is Status.CANCELLED:
        return ChildCancelled(child.id, child.kind, "was cancelled", None, None)
    return ChildFailed(child.id, child.kind, f"is {child.status}", child.error, child.error_kind)


async def _read(run: Run, ids: Sequence[UUID]) -> list[ChildState]:
    with run.busy():
        found = {state.id: state for state in await run.store.children.read_children(ids)}
    for id in ids:
        if id not in found:
            raise job_not_found(id)
        if found[id].pruned:
            raise JobPruned(await run.store.jobs.get_job(id))
    return [found[id] for id in ids]


async def _open(run: Run, key: str, subject: str, ids: Sequence[UUID], *, announce: bool) -> None:
    """Open the wait. A child that ends between the two writes is found by the second."""
    wait = Wait(key, CHILD.name, None, subject)
    await run.record([_started(key, subject)] if announce else (), open_wait(wait), await_jobs(key, ids))
    await _settle(run, key, ids)


async def _settle(run: Run, key: str, ids: Sequence[UUID]) -> None:
    await run.record((), settle_wait(key))
    circle = await _circle(run, ids)  # again: two jobs may have begun to wait for each other in the same moment
    if circle:
        await run.record(
            [NewEvent("wait_completed", json.dumps({"key": key, "kind": CHILD.name}))], close_wait(CHILD.name, key)
        )
        raise circle


async def _check_waitable(run: Run, states: Sequence[ChildState]) -> None:
    circle = await _circle(run, [state.id for state in states])
    if circle:
        raise circle
    for state in states:
        if state.parent_id is None:
            raise InvalidInput(
                f"job …{short_id(state.id)} {state.kind} has no parent: only children can be waited for",
                hint="spawn it with ctx.spawn, or look at its status between sleeps",
            )


async def _circle(run: Run, ids: Sequence[UUID]) -> WaitCircle | None:
    """The error that names the circle which a wait for these would close."""
    own = run.claimed.id
    with run.busy():
        above = {own: own} | {id: below for id, below in reversed(await run.store.children.waiters(own)) if id != own}
    target = next((id for id in ids if id in above), None)
    if target is None:
        return None
    chain = [target]
    while chain[-1] != own:
        chain.append(above[chain[-1]])
    names = [f"…{short_id(id)}" for id in [own, *chain]]
    return WaitCircle(
        f"the wait would never end, as the jobs wait for each other in a circle: {' -> '.join(names)}",
        hint="a job may wait for what it spawned, not for what stands above it",
    )


def _started(key: str, subject: str) -> NewEvent:
    return NewEvent("wait_started", json.dumps({"key": key, "kind": CHILD.name, "subject": subject}))


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((moment for moment in (one, other) if moment is not None), default=None)
