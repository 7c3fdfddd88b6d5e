"""What a fork copies from the original job: pure functions of its log."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from perdure.model.approvals import Approval, as_record
from perdure.model.errors import InvalidInput, StepNotFound
from perdure.model.events import FORK_TYPES, RESERVED_TYPES, Event, NewEvent
from perdure.model.ids import short_id
from perdure.model.steps import COPIED, Step, steps_of
from perdure.model.waits import CODE, TIMER

_CALLS = frozenset({"tool_called", "tool_returned", "tool_failed"})
_MOST_NAMED = 20


def step_named(job_id: UUID, events: Sequence[Event], from_step: str | int | None) -> Step | None:
    """The step of a job with this key, or with this number as `jobs steps` counts them; None for None.

    Raises StepNotFound, which names the job's steps; InvalidInput for another type.
    """
    if from_step is None:
        return None
    if isinstance(from_step, bool) or not isinstance(from_step, str | int):
        raise InvalidInput(f"from_step is a step's name or its number, got {from_step!r}")
    steps = steps_of(events)
    named = [step for step in steps if step.key == from_step]
    if len(named) > 1:
        which = " or ".join(f"{step.number} (the {step.kind})" for step in named)
        raise InvalidInput(
            f"job …{short_id(job_id)} has {len(named)} steps '{from_step}'",
            hint=f"give the number of the one you mean: {which}",
        )
    found = named[0] if named else None
    if found is None and (number := _number(from_step)) is not None:
        found = next((step for step in steps if step.number == number), None)
    if found is None:
        raise _not_found(job_id, steps, from_step)
    return found


def events_to_copy(events: Sequence[Event], *, before: int | None) -> list[Event]:
    """The events of the original job that its fork begins with: those recorded before this version; None: all.

    Finished steps, tool calls, answered waits and approvals, usage, events of the handler's own, and the last checkpoint. A wait
    that was open at that version is opened again. A tool call that ran at that version is copied with its outcome, if it got one
    later."""
    point = events[-1].version + 1 if before is None else before
    earlier = [e for e in events if e.version < point and e.type in FORK_TYPES and isinstance(e.payload, dict)]
    answered = {_wait(e) for e in earlier if e.type == "wait_completed"}
    checkpoint = max((e.version for e in earlier if e.type == "checkpoint_saved"), default=0)
    kept = [
        e
        for e in earlier
        if (e.type != "wait_started" or _wait(e) in answered)
        and not (e.type in ("wait_started", "wait_completed") and e.payload.get("kind") == CODE.name)
        and (e.type != "checkpoint_saved" or e.version == checkpoint)
    ]
    called: set[Any] = set()
    for event in kept:
        if event.type == "tool_called":
            called.add(_key(event))
        elif event.type in ("tool_returned", "tool_failed"):
            called.discard(_key(event))
    for event in events:
        if event.version < point or event.type not in _CALLS or _key(event) not in called:
            continue
        called.discard(_key(event))  # only its next event counts: its outcome, or a second call
        if event.type == "tool_failed" or (event.type == "tool_returned" and not event.payload.get("answered")):
            kept.append(event)
    asked = {e.payload.get("approval") for e in events if e.version < point and e.type == "approval_requested"}
    read = {e.payload.get("approval") for e in kept if e.type == "wait_completed"}
    kept += [e for e in events if _is_unread_answer(e) and e.payload["approval"] in asked - read]
    return kept + [e for e in events if e.version < point and e.attempt and e.type not in RESERVED_TYPES]


def _is_unread_answer(event: Event) -> bool:
    """A person decided. (An approval that ran out is asked again.)"""
    return event.type == "approval_decided" and event.payload.get("decision") in ("APPROVED", "DENIED")


def approvals_in(events: Sequence[Event]) -> list[UUID]:
    """The approvals whose answers are among these events without their content."""
    return [
        UUID(e.payload["approval"])
        for e in events
        if e.type in ("wait_completed", "approval_decided") and "approval" in e.payload and "recorded" not in e.payload
    ]


def copied(event: Event, answers: Mapping[UUID, Approval]) -> NewEvent:
    """An event as a fork writes it: with where it is from, and with the content of an approval's answer, which is written as
    read. Of an event of the handler's own its id alone: so the fork does not write it again."""
    if event.type not in RESERVED_TYPES:
        kept = {"type": event.type, "job": str(event.job_id), "event": str(event.event_id)}
        origin = {"job": str(event.job_id), "version": event.version, "at": event.at.isoformat()}
        return NewEvent("event_kept", json.dumps(kept | {COPIED: origin}))
    payload = dict(event.payload)
    first = payload.pop(COPIED, None)
    type = event.type
    if type == "approval_decided":  # the fork finds it read
        approval = answers[UUID(payload["approval"])]
        names = ("key", "approval", "decision", "actor")
        payload = {"kind": approval.kind} | {name: payload.get(name) for name in names}
        type = "wait_completed"
    if type == "wait_completed" and "approval" in payload and "recorded" not in payload:
        payload["recorded"] = as_record(answers[UUID(payload["approval"])])
    at = first["at"] if first else event.at.isoformat()
    payload[COPIED] = {"job": str(event.job_id), "version": event.version, "at": at}
    return NewEvent(type, json.dumps(payload, ensure_ascii=False))


def checkpoint_in(events: Sequence[Event]) -> str | None:
    """The last checkpoint among these events, as JSON text."""
    saved = [e.payload["state"] for e in events if e.type == "checkpoint_saved"]
    return json.dumps(saved[-1], ensure_ascii=False) if saved else None


def _wait(event: Event) -> Any:
    return event.payload.get("kind", TIMER.name), event.payload.get("key")


def _key(event: Event) -> Any:
    return event.payload.get("key") if isinstance(event.payload, dict) else None


def _number(from_step: str | int) -> int | None:
    if isinstance(from_step, int):
        return from_step
    return int(from_step) if from_step.isdecimal() and len(from_step) < 10 else None


def _not_found(job_id: UUID, steps: Sequence[Step], from_step: str | int) -> StepNotFound:
    wanted = f"'{from_step}'" if isinstance(from_step, str) else f"number {from_step}"
    near = difflib.get_close_matches(str(from_step), [s.key for s in steps], 1)
    message = f"job …{short_id(job_id)} has no step {wanted}" + (f"; did you mean '{near[0]}'?" if near else "")
    if not steps:
        return StepNotFound(f"{message}: it has no recorded step", hint="run it from the start: perdure jobs rerun")
    named = ", ".join(f"{s.number} {s.key}" for s in steps[:_MOST_NAMED])
    more = f" and {len(steps) - _MOST_NAMED} more" if len(steps) > _MOST_NAMED else ""
    return StepNotFound(
        message, hint=f"its steps: {named}{more}\nwithout a step the fork continues after the last recorded one"
    )
