"""What the agent of a job, and the version of the code that parked it, add to its explanation."""

from __future__ import annotations

import shlex

from perdure.model.explanation import Move, Situation, Why
from perdure.model.timing import when
from perdure.model.waits import MESSAGE, SIGNAL
from perdure.runtime.code_version import UNKNOWN
from perdure.runtime.explain.workers import Reason


def with_agent(seen: Situation, reason: Reason) -> Reason:
    """The reason; if the agent of the job is paused, with that as well."""
    agent = seen.agent
    if agent is None or agent.paused_at is None:
        return reason
    since = when(agent.paused_at, seen.now).removeprefix("at ")
    sentence = f"{reason.sentence} Its agent '{agent.id}' is paused since {since}: "
    details = {**reason.details, "agent_paused_at": agent.paused_at}
    if not any(wait.kind in (MESSAGE.name, SIGNAL.name) and wait.answered_at is None for wait in seen.job.waits):
        return Reason(
            reason.code, f"{sentence}it gets no messages meanwhile, and its jobs go on.", details, reason.moves
        )
    resume = Move(
        "accept and deliver messages and signals to it again", f"perdure agents resume {shlex.quote(agent.id)}"
    )
    return Reason(
        reason.code, f"{sentence}it gets no messages and signals until then.", details, (resume, *reason.moves)
    )


def with_code(seen: Situation, reason: Reason) -> Reason:
    """The reason why a job is parked that only a message or a signal wakes; with the code that parked it, where no live worker
    has that: the code of today may not ask for what it waits for, and nothing would say so."""
    job, parked_by = seen.job, seen.parked_by
    if reason.code is not Why.WAITING or job.due_at is not None or parked_by in (None, UNKNOWN):
        return reason
    if not any(wait.kind in (MESSAGE.name, SIGNAL.name) for wait in job.waits):
        return reason
    able = [w for w in seen.workers if w.alive and w.serves(job.queue) and job.kind in w.kinds]
    versions = sorted({w.version for w in able if w.version is not None})
    if not versions or parked_by in versions:
        return reason
    sentence = (
        f"{reason.sentence} Code of version {parked_by} asked for that, and the live workers have {' and '.join(versions)}: "
        "if theirs does not ask for it any more, the job stays here until it comes."
    )
    details = {**reason.details, "parked_by_version": parked_by, "live_versions": versions}
    fork = Move(
        "continue with the code of today, as a new job that keeps the recorded steps",
        f"perdure jobs fork {job.short_id}",
    )
    end = Move("end it", f"perdure jobs cancel {job.short_id}")
    return Reason(reason.code, sentence, details, (*reason.moves, fork, end))
