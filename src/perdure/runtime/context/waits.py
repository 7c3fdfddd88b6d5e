"""Waiting from inside a job: recorded when it begins and when it ends, so that a replay neither begins again nor asks twice."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from perdure.model.effects import Effect
from perdure.model.events import NewEvent
from perdure.model.jobs import Wait
from perdure.model.timing import Duration
from perdure.model.waits import WaitKind, opened_wait
from perdure.runtime.run import Run
from perdure.runtime.validation import check_seconds
from perdure.store.protocol import Store

A = TypeVar("A")


async def wait_once(
    run: Run, kind: WaitKind[Store, A], key: str, *, duration: Duration | None = None, subject_id: str | None = None
) -> A | None:
    """Open a wait under this key, wait, and return its answer, which must be JSON: None if `duration` passed without one. A later
    attempt gets the recorded answer. Raises InvalidInput for a bad duration."""
    return (await completed(run, kind, key, duration=duration, subject_id=subject_id)).get("answer")


async def completed(
    run: Run,
    kind: WaitKind[Store, A],
    key: str,
    *,
    duration: Duration | None = None,
    subject_id: str | None = None,
    answer_of: Callable[[Wait], Awaitable[A | None]] | None = None,
    also: Sequence[Effect] = (),
) -> dict[str, Any]:
    """As `wait_once`; returns the payload of `wait_completed`. answer_of: waits for the answer, where that is more than to read
    it. also: what else commits with the beginning of the wait."""
    recorded = recorded_answer(run, kind, key)
    if recorded is not None:
        return recorded
    wait = await opened(run, kind, key, duration, subject_id, also)
    answer = await (run.waits.answer(kind, wait) if answer_of is None else answer_of(wait))
    return await record_end(run, kind, wait, answer)


async def record_end(run: Run, kind: WaitKind[Store, A], wait: Wait, answer: A | None) -> dict[str, Any]:
    """Record the end of a wait; returns the payload of `wait_completed`."""
    done = {"key": wait.key, "kind": kind.name} | kind.recorded(answer)
    closing = kind.closes(wait, answered=answer is not None)
    await run.record([NewEvent("wait_completed", json.dumps(done))], *closing)
    run.history.rows.pop((kind.name, wait.key), None)
    return done


async def opened(
    run: Run,
    kind: WaitKind[Store, A],
    key: str,
    duration: Duration | None,
    subject_id: str | None,
    also: Sequence[Effect] = (),
) -> Wait:
    """The wait that an earlier attempt opened, else a new one. also: what else commits with its beginning."""
    length = None if duration is None else check_seconds(duration, "duration")
    before = run.history.waits.get((kind.name, key))
    known = None if before is None else opened_wait("wait_started", before.payload.get)
    if known is not None:
        await reopen_if_lost(run, kind, known)
        return known
    until = None if length is None else run.database_now() + timedelta(seconds=length)
    wait = Wait(key, kind.name, until, subject_id)
    await run.record([started(wait, length)], *kind.opens(wait), *also)
    return wait


def started(wait: Wait, seconds: float | None = None) -> NewEvent:
    """The event that opens a wait."""
    payload: dict[str, Any] = {"key": wait.key, "kind": wait.kind}
    if seconds is not None:
        payload["seconds"] = seconds
    if wait.until is not None:
        payload["until"] = wait.until.isoformat()
    if wait.subject_id is not None:
        payload["subject"] = wait.subject_id
    return NewEvent("wait_started", json.dumps(payload))


async def reopen_if_lost(run: Run, kind: WaitKind[Store, A], wait: Wait) -> None:
    """Write the row of a wait that an earlier attempt opened, if it was deleted: without it nothing would wake the job."""
    if (wait.kind, wait.key) not in run.history.rows:
        await run.record((), *kind.opens(wait))


def recorded_answer(run: Run, kind: WaitKind[Store, A], key: str) -> dict[str, Any] | None:
    """The payload of `wait_completed`, if this wait is over."""
    return run.history.answers.get((kind.name, key))
