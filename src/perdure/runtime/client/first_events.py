"""What the log of a job begins with, after the event that it was enqueued: its budget, and what its caller says of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from perdure.model.budgets import Budget
from perdure.model.events import NewEvent
from perdure.model.job_fields import NAMES as FIELD_NAMES
from perdure.model.job_fields import checked_fields
from perdure.model.jobs import Job
from perdure.model.states import WITHOUT_RESULT
from perdure.model.stuck import SET as STUCK_SET
from perdure.model.unique import Unique
from perdure.runtime import codec
from perdure.runtime.validation import check_approval_context, check_budget, check_stuck
from perdure.store.protocol.jobs import JobStore

_FIELDS = frozenset(FIELD_NAMES)


def first_events(options: Mapping[str, Any]) -> list[NewEvent]:
    """What the log of a job with these options begins with. Raises InvalidBudget, InvalidInput, NotJson, TooLarge."""
    budget = check_budget(options.get("budget"))
    events = [] if budget is None else [budget_set(budget)]
    if (stuck := check_stuck(options.get("stuck"))) is not None:
        events.append(NewEvent(STUCK_SET, json.dumps({"stuck": stuck.as_json()})))
    if (context := check_approval_context(options.get("approval_context"))) is not None:
        events.append(NewEvent("approval_context_set", json.dumps({"context": context.as_json()}, ensure_ascii=False)))
    fields = checked_fields(options).as_json() if not _FIELDS.isdisjoint(options) else {}
    if fields:
        events.insert(0, NewEvent("fields_set", codec.encode({"fields": fields}, "the metadata of the job")))
    return events


def key_to_take(old: Job) -> str | None:
    """The idempotency key that a rerun takes over: that of a dead job."""
    return old.idempotency_key if old.status in WITHOUT_RESULT else None


def unique_to_take(old: Job, now: datetime) -> Unique | None:
    """The unique key that a rerun takes over: that of a dead job, while it is active or until the end of the same period."""
    if old.unique_key is None or old.status not in WITHOUT_RESULT:
        return None
    if old.unique_until is None:
        return Unique(old.unique_key)
    left = (old.unique_until - now).total_seconds()
    return Unique(old.unique_key, period=left) if left > 0 else None


async def first_events_of(jobs: JobStore, job_id: UUID) -> list[NewEvent]:
    """What the log of a rerun begins with: what the job was enqueued with."""
    given = await jobs.list_events(
        job_id, limit=10, types=["approval_context_set", "budget_set", "fields_set", STUCK_SET]
    )
    return [NewEvent(e.type, json.dumps(e.payload)) for e in given if e.payload.get("by") != "handler"]


def budget_set(budget: Budget) -> NewEvent:
    """The event that says what the budget of a job is."""
    return NewEvent("budget_set", json.dumps({"budget": budget.as_json()}))
