"""The columns of a table of jobs, and the last column of each: why it failed, what it does, what it waits for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from uuid import UUID

from perdure.cli.format import Times, one_line, short
from perdure.cli.output import Cell, Column, status_cell
from perdure.model.approvals import Approval
from perdure.model.jobs import Job
from perdure.model.states import Status
from perdure.model.task_payload import KIND_PREFIX


def columns(times: Times, asked: Mapping[UUID, Approval] | None = None) -> list[Column[Job]]:
    """The columns of `jobs ls`; `asked` are the pending approvals by job, where they are known."""
    return [
        Column("status", lambda j: status_cell(j.status)),
        Column("job", lambda j: f"{short(j.id)} {j.goal or ''}".rstrip(), flexible=True, least=10),
        Column("kind", lambda j: j.kind, flexible=True),
        Column("attempts", lambda j: attempts_of(j, "/"), right=True),
        Column(times.age_column, lambda j: times.age(j.created_at), right=True),
        Column("queue", lambda j: j.queue, wide=True),
        Column("priority", lambda j: str(j.priority), wide=True, right=True),
        Column("worker", lambda j: j.lease.worker_id if j.lease else "", wide=True, least=12),
        Column("key", lambda j: j.idempotency_key or "", wide=True),
        Column("tags", lambda j: ",".join(j.tags), wide=True),
        Column("concurrency_key", lambda j: j.concurrency_key or "", wide=True),
        Column("id", lambda j: str(j.id), wide=True, least=36),
        Column("last", lambda j: last_word(j, times, (asked or {}).get(j.id)), flexible=True),
    ]


def attempts(job: Job) -> int:
    """How many attempts counted so far, the running one included."""
    if job.status is Status.PENDING and job.retry_count == 0:
        return 0
    return job.retry_count if job.status is Status.RETRY else job.retry_count + 1


def attempts_of(job: Job, between: str) -> str:
    """How many attempts counted so far, and how many there may be, if that is decided already."""
    return str(attempts(job)) + ("" if job.max_retries is None else f"{between}{job.max_retries + 1}")


def last_word(job: Job, times: Times, approval: Approval | None = None) -> Cell:
    """The most important fact about a job, by its status."""
    due = job.due_at is not None and job.due_at <= times.now
    match job.status:
        case Status.FAILED | Status.DEADLETTER:
            return one_line(job.error_message or ""), "red"
        case Status.RETRY:
            why = job.note.get("error") or job.note.get("reason") or ""
            return f"{'due' if due else 'next attempt ' + times.show(job.next_retry_at)}: {why}".rstrip(": ")
        case Status.WAITING_FOR_APPROVAL if due:
            return "answered, waits for a worker"
        case Status.WAITING_FOR_APPROVAL if approval is not None:
            left = f", expires {times.show(approval.expires_at)}" if approval.expires_at else ""
            return f"asks: {approval.title}{left}"
        case Status.WAITING_FOR_APPROVAL:
            return "waits for an approval"
        case Status.PARKED | Status.WAITING:
            return _progress(job) + (f"wakes {times.show(job.due_at)}" if job.due_at and not due else "waits")
        case Status.PENDING if job.waits and not due:
            return "waits for its batch"
        case Status.PENDING:
            return "waits for a worker" if due or job.due_at is None else f"starts {times.show(job.due_at)}"
        case Status.RUNNING:
            if job.lease and job.lease.cancel_requested_at:
                return "asked to stop"
            return (_progress(job) + (job.state.cursor or "")).rstrip()
        case Status.COMPLETED:
            return preview(_answer(job))
        case Status.CANCELLED:
            by = job.note.get("actor")
            return ", ".join(filter(None, [f"by {by}" if by else "", str(job.note.get("reason") or "")]))


def _answer(job: Job) -> object:
    """What a job has returned; of a task the text of its answer."""
    if job.kind.startswith(KIND_PREFIX) and isinstance(job.result, dict) and "text" in job.result:
        return job.result["text"]
    return job.result


def bar(fraction: float, width: int = 6) -> str:
    """`▓▓▓░░░`"""
    full = round(fraction * width)
    return "▓" * full + "░" * (width - full)


def preview(value: object, limit: int = 200) -> str:
    """A JSON value on one short line; empty for null."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = one_line(text[: limit * 2])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _progress(job: Job) -> str:
    if job.state.progress is None:
        return ""
    text = f"{bar(job.state.progress)} {job.state.progress:.0%} "
    return text + (f"{job.state.progress_text} · " if job.state.progress_text else "")
