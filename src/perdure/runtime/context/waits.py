"""Waiting from inside a job: recorded when it begins and when it ends, so that a replay neither begins again nor asks twice."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, TypeVar

from perdure.model.effects import close_wait, open_wait
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
    recorded = recorded_answer(run, kind, key)
    if recorded is not None:
        return recorded.get("answer")
    wait = await _opened(run, kind, key, duration, subject_id)
    answer = await run.waits.answer(kind, wait)
    done = {"key": key, "kind": kind.name} | kind.recorded(answer)
    await run.record([NewEvent("wait_completed", json.dumps(done))], close_wait(kind.name, key))
    run.history.rows.pop((kind.name, key), None)
    return answer


async def _opened(
    run: Run, kind: WaitKind[Store, A], key: str, duration: Duration | None, subject_id: str | None
) -> Wait:
    """The wait that an earlier attempt opened, else a new one."""
    length = None if duration is None else check_seconds(duration, "duration")
    before = run.history.waits.get((kind.name, key))
    known = None if before is None else opened_wait("wait_started", before.payload.get)
    if known is not None:
        await reopen_if_lost(run, known)
        return known
    until = None if length is None else run.database_now() + timedelta(seconds=length)
    payload: dict[str, Any] = {"key": key, "kind": kind.name}
    if until is not None:
        payload |= {"seconds": length, "until": until.isoformat()}
    if subject_id is not None:
        payload["subject"] = subject_id
    wait = Wait(key, kind.name, until, subject_id)
    await run.record([NewEvent("wait_started", json.dumps(payload))], open_wait(wait))
    return wait


async def reopen_if_lost(run: Run, wait: Wait) -> None:
    """Write the row of a wait that an earlier attempt opened, if it was deleted: without it nothing would wake the job."""
    if (wait.kind, wait.key) not in run.history.rows:
        await run.record((), open_wait(wait))


def recorded_answer(run: Run, kind: WaitKind[Store, A], key: str) -> dict[str, Any] | None:
    """The payload of `wait_completed`, if this wait is over."""
    return run.history.answers.get((kind.name, key))
