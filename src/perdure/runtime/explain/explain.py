"""Explains from one snapshot why a job is not moving, and what would move it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from perdure.model.explanation import MOST_AHEAD, Explanation, Move, Situation, Why, done_by_a_worker
from perdure.model.jobs import DEFAULT_GRACE_SECONDS, LeaseInfo
from perdure.model.states import FAILURES, Status
from perdure.model.steps import steps_of
from perdure.model.timing import span, when
from perdure.model.waits import WaitLine, kind_of
from perdure.model.workers import WorkerState
from perdure.runtime.explain.accounts import without_account
from perdure.runtime.explain.agents import with_agent, with_code
from perdure.runtime.explain.limits import held
from perdure.runtime.explain.workers import SOON, Reason, able_workers, count, named, seconds, with_workers

_PUT_ASIDE = timedelta(seconds=1)
"""A claim that failed has moved the queue row, if it is later than the job's own time by more than this."""

_OVERDUE = timedelta(seconds=10)
"""A job that has been next in line for longer, with a slot free for it, should have started."""


def explain(seen: Situation) -> Explanation:
    """The reason why the job is not moving, the facts, and what would move it."""
    job = seen.job
    if job.status.terminal:
        reason = _ended(seen)
    elif job.lease is not None:
        reason = _leased(seen, job.lease)
    else:
        reason = with_agent(seen, with_code(seen, _without_lease(seen)))
    return Explanation(
        job.id, job.kind, job.queue, job.status, seen.now, reason.code, reason.sentence, reason.details, reason.moves
    )


# -- no worker holds it -----------------------------------------------------------------------------------------------------


def _without_lease(seen: Situation) -> Reason:
    job, now = seen.job, seen.now
    if job.status.leased:
        return _damaged(seen, f"It is {job.status}, but has no lease")
    if job.deadline is not None and job.deadline <= now:
        who, moves = done_by_a_worker(seen, "fails it")
        sentence = f"Its deadline passed {when(job.deadline, now)}: {who}."
        return Reason(Why.DEADLINE_PASSED, sentence, {"deadline": job.deadline}, moves)
    if seen.limit is not None and seen.pause is None:
        return held(seen, seen.limit)
    if job.due_at is not None and job.due_at <= now:
        return _due(seen)
    if job.status is Status.RETRY or (job.status is Status.PENDING and not job.waits):
        return _not_yet(seen)
    return _suspended(seen)


def _due(seen: Situation) -> Reason:
    found = able_workers(seen)
    if seen.account is not None and found.code in (Why.QUEUED, Why.WORKERS_BUSY):
        return without_account(seen, seen.account)
    details = {**found.details, "due_at": seen.job.due_at, "ahead": seen.ahead, "more_ahead": seen.ahead >= MOST_AHEAD}
    sentence = f"{_why_due(seen)}{found.sentence}"
    if seen.ahead:
        many = f"at least {seen.ahead:,}" if seen.ahead >= MOST_AHEAD else f"{seen.ahead:,}"
        sentence += f" {many} {'job is' if seen.ahead == 1 else 'jobs are'} ahead of it."
    elif found.code is Why.QUEUED and seen.now - (seen.job.due_at or seen.now) > _OVERDUE:
        sentence = sentence.replace(SOON, "it should have started by now: see the log of a worker.")
        return Reason(Why.QUEUED, sentence, details, (Move("look for what is wrong", "perdure doctor"),))
    elif found.code in (Why.QUEUED, Why.WORKERS_BUSY):
        sentence += " It is the next in line."
    return Reason(found.code, sentence, details, found.moves)


def _why_due(seen: Situation) -> str:
    job, now = seen.job, seen.now
    assert job.due_at is not None
    for wait in job.waits:
        if answered := kind_of(wait.kind).woke(wait, seen):
            return answered
    ended = [w for w in job.waits if w.until is not None and w.until <= now]
    if ended and job.status in (Status.PARKED, Status.WAITING_FOR_APPROVAL):
        return kind_of(ended[0].kind).ended(ended[0], now)
    subject = "Its next attempt" if job.status is Status.RETRY else "It"
    return f"{subject} has been due for {span(seconds(now - job.due_at))}, "


def _not_yet(seen: Situation) -> Reason:
    job, now = seen.job, seen.now
    if job.due_at is None:
        return _damaged(seen, f"It is {job.status}, but it is not in the queue, so it would never start")
    found = able_workers(seen)
    note, at = job.note, when(job.due_at, now)
    details: dict[str, Any] = {"due_at": job.due_at}
    moves = (Move("run it now", f"perdure jobs retry-now {job.short_id}"),)
    meant = job.run_at if job.status is Status.PENDING else job.next_retry_at
    if meant is not None and job.due_at > meant + _PUT_ASIDE:
        sentence = f"A worker tried to claim it, and the database refused that; the next claim is {at}."
        look = Move("see what is wrong with its log", f"perdure jobs events {job.short_id}")
        return Reason(Why.PUT_ASIDE, sentence, details, (look, *moves))
    if job.status is Status.PENDING:
        reason = Reason(Why.DELAYED, f"It was enqueued to start {at}.", details, moves)
    elif error := note.get("error"):
        details |= {
            "error": error,
            "error_kind": note.get("error_kind"),
            "retry": job.retry_count,
            "max_retries": job.max_retries,
        }
        retry = f"retry {job.retry_count} of {job.max_retries}"
        reason = Reason(
            Why.BACKOFF, f"Its last attempt failed: {error}. {retry.capitalize()} is due {at}.", details, moves
        )
    else:
        why = str(note.get("reason") or "no reason is known")
        details["reason"] = why
        reason = Reason(
            Why.PUT_OFF, f"Its last attempt ended ({why}) without using a retry; the next is due {at}.", details, moves
        )
    return with_workers(reason, found)


def _suspended(seen: Situation) -> Reason:
    """First the waits for an answer, in the order in which they were opened, then the earliest time."""
    job = seen.job
    answers, times = _lines(seen)
    if not answers and not times:
        return _damaged(seen, f"It is {job.status}, but it has no wait that could end")
    if not answers and job.due_at is None:
        return _damaged(
            seen, f"It is {job.status}, but it is not in the queue, so it would not wake when {times[0].short}"
        )
    if code := [line for line in answers if line.code is Why.CODE]:
        answers, times = code, []
    details: dict[str, Any] = {"due_at": job.due_at}
    for line in (*times, *answers):
        details.setdefault(line.group, []).append(line.fact)
    if not answers:
        return with_workers(Reason(times[0].code, f"It sleeps: {_first_of(times)}.", details), able_workers(seen))
    sentence = " ".join(line.sentence for line in answers)
    if times:
        sentence += f" At the same time {_first_of(times)}."
    moves = tuple(move for line in answers for move in line.moves)
    return with_workers(Reason(answers[0].code, sentence, details, moves), able_workers(seen))


def _lines(seen: Situation) -> tuple[list[WaitLine], list[WaitLine]]:
    """The lines about the open waits, earliest first: those that can be answered, and those that only time ends."""
    answers, times = list[WaitLine](), list[WaitLine]()
    for wait in sorted(seen.job.waits, key=lambda w: w.until or seen.now):
        kind = kind_of(wait.kind)
        if (line := kind.line(wait, seen)) is not None:
            (answers if kind.answerable else times).append(line)
    return answers, times


def _first_of(times: Sequence[WaitLine]) -> str:
    return times[0].short + (f" (the first of {len(times)})" if len(times) > 1 else "")


# -- a worker holds it ------------------------------------------------------------------------------------------------------


def _leased(seen: Situation, lease: LeaseInfo) -> Reason:
    job, now, holder = seen.job, seen.now, seen.holder
    name = named(holder) if holder else f"worker {lease.worker_id}"
    details: dict[str, Any] = {
        "worker": lease.worker_id,
        "host": holder.host if holder else None,
        "pid": holder.pid if holder else None,
        "attempt": lease.attempt,
        "since": seen.claimed_at,
        "lease_expires_at": lease.expires_at,
        "heartbeat_at": holder.heartbeat_at if holder else None,
    }
    force = Move("cancel it without its worker", f"perdure jobs cancel {job.short_id} --force")
    expires = when(lease.expires_at, now)
    asked = lease.cancel_requested_at
    if lease.expires_at <= now:
        ends = "cancels it, as was asked for" if asked else "takes it over"
        who, moves = done_by_a_worker(seen, ends)
        return Reason(Why.LEASE_EXPIRED, f"The lease of {name} ran out {expires}: {who}.", details, moves)
    if asked is not None:
        details["cancel_requested_at"] = asked
        by, reason = _canceller(seen)
        details |= {"cancelled_by": by, "reason": reason}
        after, moves = done_by_a_worker(seen, "ends its lease")
        grace = DEFAULT_GRACE_SECONDS if holder is None else holder.grace
        sentence = (
            f"It was asked to stop{f' by {by}' if by else ''} {when(asked, now)}{f': {reason}' if reason else ''}. "
        )
        sentence += f"{name[0].upper()}{name[1:]} has not stopped it yet; if it does not within {span(grace)}, {after}."
        return Reason(Why.CANCELLING, sentence, details, (force, *moves))
    if holder is None or not holder.alive:
        details["takeover_at"] = lease.expires_at
        last = f"sent its last heartbeat {when(holder.heartbeat_at, now)}" if holder else "has no row"
        if holder is not None and holder.state is WorkerState.STOPPED:
            last = f"stopped {when(holder.heartbeat_at, now)}"
        who, moves = done_by_a_worker(seen, "takes it over")
        sentence = f"{name} holds it, but {last}: it seems lost. When its lease expires, {expires}, {who}."
        return Reason(Why.WORKER_SILENT, sentence[0].upper() + sentence[1:], details, (*moves, force))
    if job.status is Status.WAITING:
        answers, times = _lines(seen)
        details["timers"] = []
        for line in (*times, *answers):
            details.setdefault(line.group, []).append(line.fact)
        if answers and not times:
            return Reason(answers[0].code, f"It waits: {answers[0].short}; {name} keeps its lease.", details)
        slept = times[0].short if times else "for a moment"
        return Reason(Why.SLEEPING, f"It sleeps: {slept}; {name} keeps its lease.", details)
    return _running(seen, name, details)


def _running(seen: Situation, name: str, details: dict[str, Any]) -> Reason:
    job, now = seen.job, seen.now
    begun = [s for s in steps_of(seen.events) if s.status == "running"]
    details |= {
        "steps": [{"key": s.key, "kind": s.kind, "since": s.at} for s in begun],
        "last_step": job.state.cursor,
        "progress": job.state.progress,
        "progress_text": job.state.progress_text,
    }
    since = f" for {span(seconds(now - seen.claimed_at))}" if seen.claimed_at else ""
    sentence = f"It is running, attempt {job.attempt}, on {name}{since}"
    if begun:
        sentence += ": " + ", ".join(f"{s.kind} '{s.key}' for {span(seconds(now - s.at))}" for s in begun[:3])
        sentence += f" and {len(begun) - 3} more" if len(begun) > 3 else ""
    elif job.state.cursor:
        sentence += f": after step '{job.state.cursor}'"
    sentence += "."
    if job.state.progress is not None:
        sentence += (
            f" {job.state.progress:.0%} done{f', {job.state.progress_text}' if job.state.progress_text else ''}."
        )
    if seen.holder is not None and seen.holder.hung:
        details["hung"] = seen.holder.hung
        sentence += f" In its worker {count(seen.holder.hung, 'call hangs', 'calls hang')} of attempts that have ended."
    if seen.holder is not None and (seen.holder.state is WorkerState.DRAINING or seen.holder.command is not None):
        details["draining"] = True
        sentence += " Its worker is draining and hands it back after this step."
    return Reason(Why.RUNNING, sentence, details)


def _canceller(seen: Situation) -> tuple[str | None, str | None]:
    for event in reversed(seen.events):
        if event.type == "cancel_requested" and isinstance(event.payload, dict):
            return event.payload.get("actor"), event.payload.get("reason")
    return None, None


# -- it has ended -----------------------------------------------------------------------------------------------------------


def _ended(seen: Situation) -> Reason:
    job, now = seen.job, seen.now
    at = when(job.finished_at, now)
    details: dict[str, Any] = {"finished_at": job.finished_at, "started_at": job.started_at, "attempts": job.attempt}
    moves = [Move("run it again from the start, as a new job", f"perdure jobs rerun {job.short_id}")]
    if job.status in FAILURES:
        details |= {"error": job.error_message, "error_kind": job.error_kind}
        if job.state.cursor or steps_of(seen.events):
            go_on = Move(
                "continue where it ended, as a new job that keeps the recorded steps",
                f"perdure jobs fork {job.short_id}",
            )
            moves.insert(0, go_on)
    elif job.state.cursor and job.state.cursor.isprintable():  # else no command line can show it
        again = f"perdure jobs fork {job.short_id} --from-step {shlex.quote(job.state.cursor)}"
        moves.append(Move("run it again from a step on, as a new job that keeps the steps before it", again))
    attempts = count(job.attempt, "attempt", "attempts")
    match job.status:
        case Status.COMPLETED:
            sentence = f"It completed {at}, after {attempts}."
        case Status.FAILED:
            sentence = f"It failed {at} ({job.error_kind}): {job.error_message}"
        case Status.DEADLETTER:
            used = f"{job.retry_count} of {count(job.max_retries or 0, 'retry', 'retries')} used"
            sentence = f"It became DEADLETTER {at}, {used} ({job.error_kind}): {job.error_message}"
        case _:
            details |= {"cancelled_by": job.note.get("actor"), "reason": job.note.get("reason")}
            why = f": {details['reason']}" if details["reason"] else ""
            by = f" by {details['cancelled_by']}" if details["cancelled_by"] else ""
            sentence = f"It was cancelled{by} {at}{why}"
    if job.pruned_at is not None:
        details["pruned_at"] = job.pruned_at
        sentence = (
            f"{sentence.rstrip('.')}. Its input was pruned {when(job.pruned_at, now)}: it cannot be run again with it."
        )
        moves = []
    return Reason(Why(job.status.lower()), sentence, details, tuple(moves))


# -- damaged ----------------------------------------------------------------------------------------------------------------


def _damaged(seen: Situation, sentence: str) -> Reason:
    details = {"version": seen.job.version}
    repair = Move("repair its rows from its log", "perdure fsck --fix")
    moves = (repair, Move("end it", f"perdure jobs cancel {seen.job.short_id}"))
    return Reason(Why.DAMAGED, f"{sentence}: its rows were changed by hand.", details, moves)
