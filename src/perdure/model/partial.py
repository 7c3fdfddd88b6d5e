"""What is left of a job that failed: its last action, what it did and used, read from its log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from perdure.model.cost import ZERO, text_of_cost
from perdure.model.events import Event
from perdure.model.jobs import Job
from perdure.model.steps import steps_of
from perdure.model.stuck import NOTICED
from perdure.model.timing import span

PREVIEW = 200
"""Characters of what the last action gave."""

_OK = {"done": True, "failed": False}


@dataclass(frozen=True, slots=True)
class LastAction:
    """The last step or tool that ended or was cut off. preview: the first 200 characters of its result or error. success: None
    where it was cut off."""

    kind: str
    key: str
    success: bool | None
    preview: str


@dataclass(frozen=True, slots=True)
class PartialResult:
    """What a job has that has no result. It is read from the log, so every failure has one, also that of a lost worker.

    partial: its last checkpoint; without one the result of its last step or tool; None if there is neither. failure_reason: why
    it failed; None if it has not. action_stats: how many steps and tools there are by how they ended: done, failed, cut off.
    elapsed: seconds from its first start to its end. repair_attempts: attempts that were begun because it was stuck.
    """

    partial: Any
    failure_reason: str | None
    last_action: LastAction | None
    action_stats: dict[str, int] = field(default_factory=dict)
    tokens: int = 0
    cost: Decimal = ZERO
    elapsed: float | None = None
    repair_attempts: int = 0


def partial_of(job: Job, events: Sequence[Event]) -> PartialResult:
    """What is left of a job, by all events of its log."""
    steps = [step for step in steps_of(events) if step.kind in ("step", "tool")]
    stats: dict[str, int] = {}
    for step in steps:
        stats[step.status] = stats.get(step.status, 0) + 1
    ends = {e.payload["key"]: e.version for e in events if e.type in _ACTIONS}
    last = max(steps, key=lambda step: ends.get(step.key, step.version), default=None)
    partial = job.state.checkpoint
    if partial is None:
        done = [step for step in steps if step.status == "done"]
        partial = max(done, key=lambda step: ends.get(step.key, step.version)).result if done else None
    end = job.finished_at
    return PartialResult(
        partial=partial,
        failure_reason=job.error_message,
        last_action=None if last is None else LastAction(last.kind, last.key, _OK.get(last.status), _preview(last)),
        action_stats=stats,
        tokens=job.state.tokens,
        cost=job.state.cost,
        elapsed=None if end is None or job.started_at is None else (end - job.started_at).total_seconds(),
        repair_attempts=sum(e.type == NOTICED and e.payload["action"] == "retry" for e in events),
    )


_ACTIONS = frozenset({"node_started", "node_finished", "tool_called", "tool_returned", "tool_failed", "step_failed"})


def _preview(step: Any) -> str:
    value = step.error if step.status == "failed" else step.result
    if value is None:
        return ""
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))[:PREVIEW]


def line(partial: PartialResult) -> str:
    """`3 done, 1 failed; last tool 'search' (failed); 1,200 tokens, cost 0.5; 2m`."""
    parts = [", ".join(f"{number:,} {status}" for status, number in partial.action_stats.items())]
    if (last := partial.last_action) is not None:
        how = {True: "done", False: "failed", None: "cut off"}[last.success]
        parts.append(f"last {last.kind} '{last.key}' ({how})")
    if partial.tokens or partial.cost:
        parts.append(f"{partial.tokens:,} tokens, cost {text_of_cost(partial.cost)}")
    if partial.elapsed is not None:
        parts.append(span(partial.elapsed))
    if partial.repair_attempts:
        parts.append(f"begun again {partial.repair_attempts} times because it was stuck")
    return "; ".join(part for part in parts if part)
