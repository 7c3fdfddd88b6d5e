"""The steps of a job, read from its log: recorded, running and waiting ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from perdure.model.events import Event

COPIED = "copied_from"
"""The key in the payload of an event that a fork copied from another job: {"job", "version", "at"} of the original."""

_ENDS = frozenset({"job_completed", "job_failed", "job_cancelled", "job_deadlettered"})


@dataclass(slots=True)
class Step:
    """One keyed call of a job.

    kind: step, tool, timer, approval, question, spawn or child (a wait for children).
    status: done, running, failed, waiting, or `cut off` for a call that a crash or
    the end of the job interrupted. number: counts the job's steps from 1, in the order in which they began. version: of its first
    event. at: when it began, UTC. seconds: how long it took. calls: how often its function was called in that attempt (a step),
    or in all (a tool). digest: changes when its arguments do. kept: it was recorded by the job this one was forked from. subject:
    the id of its approval."""

    key: str
    kind: str
    status: str
    at: datetime
    attempt: int | None
    number: int
    version: int
    seconds: float | None = None
    calls: int | None = None
    result: Any = None
    error: str | None = None
    digest: str | None = None
    kept: bool = False
    subject: str | None = None


def steps_of(events: Iterable[Event]) -> list[Step]:
    """The steps in the order in which they first appear in `events`, which are in the order of the log."""
    found: dict[tuple[str, str], Step] = {}
    for event in events:
        if event.type in _ENDS or event.type in ("run_started", "job_retrying"):
            _end_attempt(found)
        if event.type in _ENDS:
            _end_job(found)
        key = event.payload.get("key") if isinstance(event.payload, dict) else None
        if isinstance(key, str):
            _read(found, key, event, event.payload)
    return list(found.values())


def _end_attempt(found: dict[tuple[str, str], Step]) -> None:
    for step in found.values():
        if step.status == "running":
            step.status = "cut off"


def _end_job(found: dict[tuple[str, str], Step]) -> None:
    """End the open waits. An answer that ended the job, such as a denial, counts as an answer."""
    for step in found.values():
        if step.status == "waiting":
            step.status = "cut off" if step.result is None else "done"


def _read(found: dict[tuple[str, str], Step], key: str, event: Event, payload: dict[str, Any]) -> None:
    at, kept = origin_of(event, payload)

    def step(kind: str, status: str) -> Step:
        now = found.get((kind, key))
        if now is None:
            now = found[kind, key] = Step(key, kind, status, at, event.attempt, len(found) + 1, event.version)
        now.status, now.attempt, now.kept = status, event.attempt or now.attempt, kept
        now.digest = payload.get("digest", now.digest)
        return now

    match event.type:
        case "node_started":
            step("step", "running").at = at
        case "step_failed":
            failed = step("step", "failed")
            failed.error, failed.calls = payload.get("error"), payload.get("call")
        case "node_finished":
            done = step("step", "done")
            done.seconds, done.calls = payload.get("ms", 0) / 1000, payload.get("calls")
            done.result, done.error = payload.get("result"), None
        case "tool_called":
            called = step("tool", "running")
            called.at, called.calls, called.error = at, (called.calls or 0) + 1, None
        case "tool_failed":
            failed = step("tool", "failed")
            failed.error, failed.seconds = payload.get("error"), (at - failed.at).total_seconds()
        case "tool_returned":
            done = step("tool", "done")
            done.seconds, done.result = (at - done.at).total_seconds(), payload.get("result")
        case "failure_caught":
            failed = step(str(payload.get("kind", "step")), "failed")
            failed.error = payload.get("error")
        case "child_spawned":
            step("spawn", "done").result = payload.get("child")
        case "approval_requested":
            step(str(payload.get("kind", "approval")), "waiting").subject = payload.get("approval")
        case "approval_decided":
            for asked in ("approval", "question"):
                if (now := found.get((asked, key))) is not None and now.subject == payload.get("approval"):
                    _answered(now, at, payload)
        case "wait_started" | "wait_completed" if payload.get("kind") == "code":
            pass  # it is no step: it says that one does not fit
        case "wait_started":
            step(str(payload.get("kind", "timer")), "waiting")
        case "wait_completed":
            done = step(str(payload.get("kind", "timer")), "done")
            if isinstance(recorded := payload.get("recorded"), dict):  # a fork does not ask again
                done.at = _moment(recorded.get("requested_at"), at)
            _answered(done, at, payload)
        case _:
            pass


def _answered(step: Step, at: datetime, payload: dict[str, Any]) -> None:
    step.seconds = (at - step.at).total_seconds()
    step.result = payload.get("decision", "closed" if payload.get("closed") else payload.get("answer"))
    if payload.get("actor"):
        step.result = f"{step.result} by {payload['actor']}"


def origin_of(event: Event, payload: dict[str, Any]) -> tuple[datetime, bool]:
    """When it happened first, and whether a fork copied it."""
    copied = payload.get(COPIED)
    return (_moment(copied.get("at"), event.at), True) if isinstance(copied, dict) else (event.at, False)


def _moment(text: Any, otherwise: datetime) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return otherwise
