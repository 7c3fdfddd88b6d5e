"""Which workers could run a job, read from one snapshot, and the sentences that say so."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from perdure.model.explanation import Move, Situation, Why, start_worker
from perdure.model.queues import QueuePause
from perdure.model.task_payload import KIND_PREFIX
from perdure.model.timing import when
from perdure.model.workers import WorkerInfo, WorkerState

SOON = "it should start in a moment."


@dataclass(frozen=True, slots=True)
class Reason:
    """The part of an explanation that is not the job's own fields."""

    code: Why
    sentence: str
    details: dict[str, Any]
    moves: tuple[Move, ...] = ()


def able_workers(seen: Situation) -> Reason:
    """Which workers could start the job now."""
    job, queue = seen.job, f"queue '{seen.job.queue}'"
    serving = [w for w in seen.workers if w.serves(job.queue)]
    alive = [w for w in serving if w.alive]
    taking = [w for w in alive if w.state is WorkerState.RUNNING and w.command is None]
    able = [w for w in taking if job.kind in w.kinds]
    slots = sum(w.concurrency for w in able)
    busy = sum(min(w.held, w.concurrency) for w in able)  # jobs that are claimed ahead use no slot
    facts: dict[str, Any] = {"workers": [w.id for w in able], "slots": slots, "busy": busy}
    start = start_worker(job)
    if seen.pause is not None:
        return paused(seen, seen.pause)
    if not alive:
        sentence = f"and no live worker serves {queue}."
        if serving:
            last = max(serving, key=lambda w: w.heartbeat_at)
            facts["last_worker"], facts["last_heartbeat_at"] = last.id, last.heartbeat_at
            sentence += (
                f" The last one, {named(last)}, sent its last heartbeat {when(last.heartbeat_at, seen.now)}, "
                "and did not stop in order."
            )
        return Reason(Why.NO_WORKER, sentence, facts, (start,))
    if not taking:
        facts["draining"] = [w.id for w in alive]
        who = count(len(alive), "worker that serves", "workers that serve")
        sentence = f"but the {who} {queue} {'is' if len(alive) == 1 else 'are'} draining and will claim no more jobs."
        return Reason(Why.WORKERS_DRAINING, sentence, facts, (start,))
    if not able:
        known = sorted({kind for w in taking for kind in w.kinds})
        facts["serving"], facts["known_kinds"] = [w.id for w in taking], known
        sentence = f"but no live worker of {queue} has a handler for kind '{job.kind}'. They have: {_listed(known)}."
        what = (
            "that serves this tool" if job.kind.startswith(KIND_PREFIX) else f"whose App has the handler '{job.kind}'"
        )
        move = Move(f"start a worker {what}", start.command)
        return Reason(Why.NO_HANDLER, sentence, facts, (move,))
    workers = count(len(able), "worker", "workers")
    if busy >= slots:
        sentence = f"but all {count(slots, 'slot', 'slots')} of the {workers} for it are busy."
        return Reason(Why.WORKERS_BUSY, sentence, facts, (Move("start another worker", start.command),))
    sentence = f"and {slots - busy} of {count(slots, 'slot', 'slots')} of {workers} for it are free: {SOON}"
    return Reason(Why.QUEUED, sentence, facts)


def paused(seen: Situation, pause: QueuePause) -> Reason:
    """Its queue is paused: by whom, since when and why."""
    since = when(pause.paused_at, seen.now).removeprefix("at ")
    sentence = f"but queue '{pause.queue}' is paused by {pause.paused_by} since {since}"
    sentence += f": {pause.reason}." if pause.reason else "."
    facts = {"paused_by": pause.paused_by, "paused_at": pause.paused_at, "reason": pause.reason}
    move = Move("let its jobs start again", f"perdure queues resume {shlex.quote(pause.queue)}")
    return Reason(Why.PAUSED, sentence, facts, (move,))


def with_workers(reason: Reason, found: Reason) -> Reason:
    """The reason why a job is not due yet; if no worker could start it when it is due, with that as well."""
    if found.code in (Why.QUEUED, Why.WORKERS_BUSY):
        return reason
    known = {k: v for k, v in found.details.items() if k not in ("slots", "busy")}
    then = found.sentence.partition(" ")[2]
    return Reason(
        reason.code,
        f"{reason.sentence} Even then it could not start: {then}",
        {**reason.details, "then": found.code.value, **known},
        (*reason.moves, *found.moves),
    )


def named(worker: WorkerInfo) -> str:
    """A worker, with its process and host."""
    return f"worker {worker.id} (process {worker.pid} on {worker.host})"


def seconds(length: timedelta) -> float:
    """A length of time in seconds."""
    return length.total_seconds()


def count(number: int, one: str, many: str) -> str:
    """`1 slot`, `1,000 slots`."""
    return f"{number:,} {one if number == 1 else many}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "") if names else "none"
