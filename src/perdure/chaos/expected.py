"""Whether a job ended as its input demands, and whether its effects outside of the database fit its log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from uuid import UUID

from perdure.chaos.invariants import RECORDS, JobData, key_of
from perdure.chaos.jobs import TOOLS, Op, effects_of, expected_ends
from perdure.model.events import Event
from perdure.model.states import Status

Effects = dict[UUID, list[tuple[int, str]]]
"""The effects of each job, in order: attempt and name."""


def read_effects(directory: Path) -> Effects:
    """Read the file of effects."""
    effects: Effects = {}
    file = directory / "effects"
    for line in file.read_text().splitlines() if file.exists() else ():
        job, attempt, name = line.split(" ", 2)
        effects.setdefault(UUID(job), []).append((int(attempt), name))
    return effects


def violations(case: JobData, effects: Effects, cancelled: Collection[UUID]) -> Iterator[str]:
    """What is wrong with a job of the harness, besides `invariants.problems`. cancelled: jobs that were to be cancelled."""
    yield from _of_the_end(case, cancelled)
    if isinstance(case.job.payload, dict) and "ops" in case.job.payload:
        done = effects.get(case.job.id, [])
        yield from _of_steps(case, done)
        for op in case.job.payload["ops"]:
            if op["do"] in TOOLS:
                yield from _of_tool(case, Op(**op), done)


def _of_the_end(case: JobData, cancelled: Collection[UUID]) -> Iterator[str]:
    job = case.job
    if job.status is Status.CANCELLED:
        if job.id not in cancelled:
            yield "it is CANCELLED, and no client cancelled it"
        return
    if not job.status.terminal:
        yield f"it is stuck: {job.status}, due {job.due_at}, {job.lease or 'no lease'}, waits {list(job.waits)}"
        return
    if job.status is Status.DEADLETTER and job.error_kind == "lease_lost":
        return  # it lost more workers than it may; its counters are checked elsewhere
    known = expected_ends(job.kind, job.payload, deadline=job.deadline is not None)
    for end in known:
        if job.status is end.status and end.error_kind in (None, job.error_kind):
            if job.result != end.result and not end.any_result:
                yield f"its result is {job.result}, not {end.result}"
            return
    expected = " or ".join(f"{end.status} {end.error_kind or ''}".strip() for end in known)
    yield f"it ended {job.status} ({job.error_kind}: {job.error_message}), not {expected}"


def _of_steps(case: JobData, done: list[tuple[int, str]]) -> Iterator[str]:
    """What is recorded never runs again, nor what failed and was gone on from; nothing runs twice in one attempt."""
    retried = {key_of(e): e.version for e in case.events if e.type == "failure_retried"}
    for event in case.events:
        caught = event.type == "failure_caught" and event.version > retried.get(key_of(event), 0)
        if event.type not in RECORDS and not caught:
            continue
        name = (key_of(event) or "").rpartition("[")[2].rstrip("]")
        attempts = [attempt for attempt, what in done if what == name]
        if max(attempts, default=0) > (event.attempt or 0):
            yield f"'{name}' ran in attempt {max(attempts)}, and attempt {event.attempt} had recorded it"
    for (attempt, name), times in Counter(done).items():
        if times > 1:
            yield f"'{name}' ran {times} times in attempt {attempt}"
    known = {name for op in case.job.payload["ops"] for name in effects_of(Op(**op))}
    if unknown := {name for _, name in done} - known:
        yield f"it did what is not in its input: {sorted(unknown)}"


def _of_tool(case: JobData, op: Op, done: list[tuple[int, str]]) -> Iterator[str]:
    """A side effect happens only after its call was logged, and again only where an answer or its policy allows it."""
    events = [e for e in case.events if key_of(e) in (op.name, *_questions(case, op))]
    calls = [
        e.attempt for e in events if e.type == "tool_called" and e.attempt
    ]  # a fork begins with calls of attempt 0
    effects = [attempt for attempt, name in done if name == op.name]
    if unwritten := Counter(effects) - Counter(calls):
        yield f"'{op.name}' happened without a logged call in attempts {sorted(unwritten)}"
    if len(calls) != len(set(calls)):
        yield f"'{op.name}' was called twice in one attempt: {calls}"
    allowed = True
    for event in events:
        if event.type == "tool_called":
            if not allowed:
                yield f"'{op.name}' was silently called again in attempt {event.attempt}"
            allowed = op.on_unknown == "retry"
        elif event.type == "tool_failed" or (event.type == "wait_completed" and _answer(case, event) == "retry"):
            allowed = True


def _questions(case: JobData, op: Op) -> set[str]:
    """The keys of the questions about a tool."""
    asked = {key_of(e) for e in case.events if e.type == "wait_completed" and e.payload.get("kind") == "question"}
    return {key for key in asked if key is not None and key.startswith(f"{op.name}?")}


def _answer(case: JobData, event: Event) -> str | None:
    """What was said to have happened; a fork has it in its log."""
    recorded = event.payload.get("recorded", {}).get("decision_payload")
    said = [a.decision_payload for a in case.approvals if str(a.id) == event.payload.get("approval")]
    answer = said[0] if said else recorded
    return answer.get("outcome") if isinstance(answer, dict) else None
