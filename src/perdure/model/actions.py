"""What a job did: the calls of its tools, read from its log."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from perdure.model.cost import ZERO, add_cost, cost_of
from perdure.model.events import Event
from perdure.model.shown import sanitised
from perdure.model.steps import origin_of

ACTION_TYPES = ("tool_called", "tool_returned", "tool_failed", "failure_caught", "usage_recorded")
"""The events that actions are read from."""
_USAGE = "usage@tool:"
_REPEATED = re.compile(r"(\[.*\])?(#\d+)?$")


@dataclass(slots=True)
class Action:
    """One call of a tool.

    sequence: 0, 1, 2, ... within the job, in all its attempts. key: of the call; those of a retry have the same one. input: its
    arguments, redacted and bounded; None in a log of an older version. output: what it returned; sanitised_output: the same
    without what looks like a secret. success: None while it runs, and where its outcome is unknown. seconds: how long it took.
    tokens, cost: what it reported by `ctx.usage`. answered: a person has said what it returned. idempotency_key: what it could
    give to the other side. attempt: of the job. at: when it was called, UTC.
    """

    sequence: int
    key: str
    tool: str
    at: datetime
    attempt: int | None
    input: Any = None
    output: Any = None
    sanitised_output: Any = None
    success: bool | None = None
    error: str | None = None
    seconds: float | None = None
    tokens: int = 0
    cost: Decimal = ZERO
    answered: bool = False
    idempotency_key: str | None = None


def actions_of(events: Iterable[Event]) -> list[Action]:
    """The actions in the order of their calls; `events` are in the order of the log."""
    found: list[Action] = []
    last: dict[str, Action] = {}
    for event in events:
        payload = event.payload
        if not isinstance(payload, dict) or not isinstance(key := payload.get("key"), str):
            continue
        at = origin_of(event, payload)[0]
        if event.type == "tool_called":
            action = Action(len(found), key, _REPEATED.sub("", key), at, event.attempt, payload.get("input"))
            action.idempotency_key = payload.get("idempotency_key")
            found.append(action)
            last[key] = action
        elif event.type == "usage_recorded" and key.startswith(_USAGE):
            if (of := last.get(key.removeprefix(_USAGE).rpartition("/")[0])) is not None:
                of.tokens += payload.get("tokens", 0)
                of.cost = add_cost(of.cost, cost_of(payload.get("cost")))
        elif (now := last.get(key)) is not None:
            _read(now, event, payload, at)
    return found


def _read(action: Action, event: Event, payload: dict[str, Any], at: datetime) -> None:
    if event.type == "tool_returned":
        action.success, action.answered = True, bool(payload.get("answered"))
        action.output, action.error = payload.get("result"), None
        action.sanitised_output = sanitised(action.output)
    elif event.type == "tool_failed":
        action.success, action.error = False, payload.get("error")
    elif event.type == "failure_caught" and payload.get("kind") == "tool":
        action.error = action.error or payload.get("error")
        return
    else:
        return
    if not action.answered:
        action.seconds = (at - action.at).total_seconds()
