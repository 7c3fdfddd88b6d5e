"""The steps of a job, read from its log: what was recorded, what runs, what waits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from perdure.cli.jobtable import preview
from perdure.cli.output import Cell, Column
from perdure.cli.words import Times, span
from perdure.model.events import Event

ICONS = {
    "done": ("✓", "green"),
    "running": ("◐", "cyan"),
    "failed": ("✕", "red"),
    "waiting": ("⏸", "blue"),
    "cut off": ("?", "yellow"),
}


@dataclass(slots=True)
class Step:
    """One keyed call of a job. kind: step, tool, timer, approval or question. status: done, running, failed, waiting, or
    `cut off` for a tool call whose outcome a crash left open. seconds: how long it took."""

    key: str
    kind: str
    status: str
    at: datetime
    attempt: int | None
    seconds: float | None = None
    tries: int | None = None
    result: Any = None
    error: str | None = None


def steps_of(events: Iterable[Event]) -> list[Step]:
    """The steps in the order in which they first appear."""
    found: dict[str, Step] = {}
    for event in events:
        if event.type in ("run_started", "job_cancelled", "job_failed", "job_deadlettered", "job_retrying"):
            _attempt_over(found)
        key = event.payload.get("key") if isinstance(event.payload, dict) else None
        if isinstance(key, str):
            _read(found, key, event, event.payload)
    return list(found.values())


def _attempt_over(found: dict[str, Step]) -> None:
    for step in found.values():
        if step.status == "running":
            step.status = "cut off"


def _read(found: dict[str, Step], key: str, event: Event, payload: dict[str, Any]) -> None:
    def step(kind: str, status: str) -> Step:
        now = found.setdefault(key, Step(key, kind, status, event.at, event.attempt))
        now.status, now.attempt = status, event.attempt or now.attempt
        return now

    match event.type:
        case "node_started":
            step("step", "running").at = event.at
        case "step_failed":
            failed = step("step", "failed")
            failed.error, failed.tries = payload.get("error"), payload.get("try")
        case "node_finished":
            done = step("step", "done")
            done.seconds, done.tries = payload.get("ms", 0) / 1000, payload.get("tries")
            done.result, done.error = payload.get("result"), None
        case "tool_called":
            called = step("tool", "running")
            called.at, called.tries, called.error = event.at, (called.tries or 0) + 1, None
        case "tool_failed":
            failed = step("tool", "failed")
            failed.error, failed.seconds = payload.get("error"), (event.at - failed.at).total_seconds()
        case "tool_returned":
            done = step("tool", "done")
            done.seconds, done.result = (event.at - done.at).total_seconds(), payload.get("result")
        case "approval_requested":
            step("approval", "waiting")
        case "wait_started":
            step(str(payload.get("kind", "timer")), "waiting")
        case "wait_completed":
            done = step(str(payload.get("kind", "timer")), "done")
            done.kind = str(payload.get("kind", done.kind))
            done.seconds = (event.at - done.at).total_seconds()
            done.result = payload.get("decision")
            if payload.get("actor"):
                done.result = f"{done.result} by {payload['actor']}"
        case _:
            pass


def columns(times: Times) -> list[Column[Step]]:
    """The columns of `jobs steps`."""
    return [
        Column("status", lambda s: (f"{ICONS[s.status][0]} {s.status}", ICONS[s.status][1])),
        Column("step", lambda s: s.key, flexible=True),
        Column("kind", lambda s: s.kind),
        Column("at", lambda s: times.show(s.at), right=True),
        Column("time", lambda s: "" if s.seconds is None else span(s.seconds), right=True),
        Column("tries", lambda s: str(s.tries or ""), right=True),
        Column("attempt", lambda s: str(s.attempt or ""), wide=True, right=True),
        Column("result", _result, flexible=True),
    ]


def _result(step: Step) -> Cell:
    return (step.error, "red") if step.error else preview(step.result)
