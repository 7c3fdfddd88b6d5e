"""What the caller of a job says about it besides its input, and a job as the design document of contexts writes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from perdure.model.cost import cost_of, text_of_cost
from perdure.model.errors import InvalidInput
from perdure.model.events import Event
from perdure.model.jobs import Job
from perdure.model.states import Status
from perdure.model.timing import seconds
from perdure.model.tooling.task import check_variable

MOST_TEXT = 10_000


@dataclass(frozen=True, slots=True)
class JobFields:
    """What the caller of a job says about it.

    user_id: whose job it is; None: its tenant's. requester_id: who asked for it, if that is another. budget_token: the currency
    of amounts. estimated_duration: seconds. metadata: JSON values of your own. timezone: of the user, such as "Europe/Berlin".
    extra_env: environment of the coding CLIs that it runs and of what they start; `env:NAME` is a variable of the worker.
    """

    user_id: str | None = None
    requester_id: str | None = None
    conversation_id: UUID | None = None
    title: str | None = None
    description: str | None = None
    category: str | None = None
    budget_token: str | None = None
    bid_amount: Decimal | None = None
    estimated_cost: Decimal | None = None
    estimated_duration: float | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    timezone: str = "UTC"
    extra_env: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """As they are stored: those that were given."""
        blank = JobFields()
        return {
            f.name: _plain(getattr(self, f.name))
            for f in fields(self)
            if getattr(self, f.name) != getattr(blank, f.name)
        }


NAMES = tuple(f.name for f in fields(JobFields))


def checked_fields(given: Mapping[str, Any]) -> JobFields:
    """The fields among these values; others are left out. Raises InvalidInput."""
    values = {name: given[name] for name in NAMES if given.get(name) is not None}
    for name in ("user_id", "requester_id", "title", "description", "category", "budget_token"):
        if name in values and not _is_text(values[name]):
            raise InvalidInput(f"{name} is text of 1 to {MOST_TEXT} characters without NUL, got {values[name]!r:.60}")
    for name in ("bid_amount", "estimated_cost"):
        if name in values:
            values[name] = _amount(name, values[name])
    try:
        if "conversation_id" in values:
            values["conversation_id"] = UUID(str(values["conversation_id"]))
        if "estimated_duration" in values:
            values["estimated_duration"] = seconds(values["estimated_duration"])
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"conversation_id is a UUID, estimated_duration a duration: {error}") from None
    if "timezone" in values:
        try:
            ZoneInfo(values["timezone"])
        except (KeyError, ValueError, TypeError, OSError):
            raise InvalidInput(
                f"there is no time zone {values['timezone']!r:.60}", hint="for example Europe/Berlin"
            ) from None
    if not isinstance(values.get("metadata", {}), dict):
        raise InvalidInput(f"metadata is a JSON object, got {values['metadata']!r:.60}")
    if not isinstance(values.get("extra_env", {}), dict):
        raise InvalidInput(f"extra_env is a dict of texts, got {values['extra_env']!r:.60}")
    for name, value in values.get("extra_env", {}).items():
        check_variable(name, value)
    return JobFields(**values)


def snapshot(job: Job, given: JobFields, budget: Mapping[str, Any], events: Iterable[Event]) -> dict[str, Any]:
    """A job with the keys of the design document, as JSON values. As there, the environment, the recording of HTTP, the outputs
    of tools and the rules for approvals are left out, and requester_id where there is none.

    budget: its limits. events: its transitions."""
    moves = [e for e in events if e.new_status is not None]
    requester = {} if given.requester_id is None else {"requester_id": given.requester_id}
    return {
        "job_id": str(job.id),
        "state": str(job.status),
        "user_id": given.user_id or job.tenant_id,
        **requester,
        "conversation_id": _plain(given.conversation_id),
        "title": given.title or job.goal or job.kind,
        "description": given.description or "",
        "category": given.category,
        "budget": _plain(budget.get("cost")),
        "budget_token": given.budget_token,
        "bid_amount": _plain(given.bid_amount),
        "estimated_cost": _plain(given.estimated_cost),
        "estimated_duration": given.estimated_duration,
        "actual_cost": text_of_cost(job.state.cost),
        "total_tokens_used": job.state.tokens,
        "max_tokens": budget.get("tokens", 0),
        "created_at": _plain(job.created_at),
        "started_at": _plain(job.started_at),
        "completed_at": _plain(job.finished_at),
        "repair_attempts": job.retry_count + sum(_was_stuck(e) for e in moves),
        "transitions": [
            {
                "from": None if e.previous_status is None else str(e.previous_status),
                "to": str(e.new_status),
                "timestamp": _plain(e.at),
                "reason": e.payload.get("reason") or e.payload.get("error") if isinstance(e.payload, dict) else None,
            }
            for e in moves
        ],
        "metadata": given.metadata,
        "user_timezone": given.timezone,
    }


def _was_stuck(event: Event) -> bool:
    """Whether an attempt ended because it made no progress, and the job runs again."""
    return (
        event.new_status is Status.RETRY and isinstance(event.payload, dict) and event.payload.get("reason") == "stuck"
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= MOST_TEXT and "\x00" not in value


def _amount(name: str, value: Any) -> Decimal:
    try:
        amount = cost_of(None if isinstance(value, bool) else value)
    except ValueError:
        amount = Decimal(-1)
    if amount < 0:
        raise InvalidInput(f"{name} is a number that is not negative, got {value!r:.60}")
    return amount


def _plain(value: Any) -> Any:
    match value:
        case UUID():
            return str(value)
        case Decimal():
            return text_of_cost(value)
        case datetime():
            return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        case _:
            return value
