"""Explains a job that waits for a slot of its concurrency key."""

from __future__ import annotations

import shlex

from perdure.model.agents import key_of_agent
from perdure.model.explanation import MOST_AHEAD, Move, Situation, Why, done_by_a_worker
from perdure.model.ids import short_id
from perdure.model.limits import Limit
from perdure.model.timing import when
from perdure.runtime.explain.workers import Reason


def held(seen: Situation, limit: Limit) -> Reason:
    """The key, how many of its slots are in use, and by which jobs."""
    key = shlex.quote(limit.key)
    details = {
        "due_at": seen.job.due_at,
        "key": limit.key,
        "max": limit.max,
        "in_use": limit.in_use,
        "waiting": limit.waiting,
        "holders": [str(id) for id in limit.holders],
        "set_by_hand": limit.set_by_hand,
        "before": seen.before,
    }
    if limit.rate is not None:
        details["per_minute"] = limit.rate.per_minute
        details["started"] = limit.rate.started
        details["next_at"] = limit.rate.next_at
        if limit.rate.next_at is not None and not limit.full:
            sentence = (
                f"It waits until it may start: {limit.rate.started} jobs of {limit.key!r} have started in the last minute, "
                f"and at most {limit.rate.per_minute} may; the next one may start {when(limit.rate.next_at, seen.now)}."
            )
            faster = Move(
                "let more of them start", f"perdure limits set {key} --per-minute {limit.rate.per_minute * 2}"
            )
            return Reason(Why.LIMIT, sentence, details, (faster,))
    if not limit.full:
        who, moves = done_by_a_worker(seen, "lets it go on")
        sentence = f"It waited for a slot of {limit.key!r}, and one is free: {who}."
        return Reason(Why.LIMIT, sentence, details, moves)
    most = limit.max or 0
    raised = Move("let more of them run", f"perdure limits set {key} --max {most + 1}")
    if most == 0:
        return Reason(Why.LIMIT, f"It waits for a slot of {limit.key!r}, whose maximum is 0.", details, (raised,))
    by = ", ".join(f"…{short_id(id)}" for id in limit.holders)
    more = f" and {limit.in_use - len(limit.holders)} more" if limit.in_use > len(limit.holders) else ""
    jobs = "job" if limit.in_use == 1 else "jobs"
    sentence = f"It waits for a slot of {limit.key!r}: {limit.in_use} of {most} in use by {jobs} {by}{more}."
    if seen.agent is not None and limit.key == key_of_agent(seen.agent.id):
        at_a_time = "one job" if most == 1 else f"{most:,} jobs"
        sentence = f"It waits for its turn: agent '{seen.agent.id}' runs {at_a_time} at a time, now {jobs} {by}{more}."
    sentence += f" {_place(seen.before)}"
    look = tuple(
        Move("see what the oldest of them does", f"perdure jobs explain {short_id(id)}") for id in limit.holders[:1]
    )
    return Reason(Why.LIMIT, sentence, details, (*look, raised))


def _place(before: int) -> str:
    if not before:
        return "It is the next."
    many = f"At least {before:,}" if before >= MOST_AHEAD else f"{before:,}"
    return f"{many} {'job is' if before == 1 else 'jobs are'} before it."
