"""Rows into records: both dialects name their columns alike and differ only in how they write a value."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from perdure.model.approvals import Approval, ApprovalStatus
from perdure.model.cost import cost_of
from perdure.model.events import Event
from perdure.model.figures import Decided, Figures, LiveJobs
from perdure.model.jobs import ClaimedJob, Job, JobState, Lease, LeaseInfo, RunRecord, Wait
from perdure.model.signals import AgentSignal, Signal
from perdure.model.states import Status
from perdure.model.timing import FIRST_MOMENT, LAST_MOMENT
from perdure.model.workers import WorkerCommand, WorkerInfo, WorkerState

Row = Mapping[str, Any]


class Codec(Protocol):
    """How a dialect writes ids, times and lists; None stays None outside."""

    def uuid(self, value: Any) -> UUID:
        """An id column."""
        ...

    def time(self, value: Any) -> datetime:
        """A time column, as UTC."""
        ...

    def seconds(self, value: Any) -> float:
        """A column that holds a length of time."""
        ...

    def texts(self, value: Any) -> tuple[str, ...]:
        """A column that holds a list of texts."""
        ...


def _json(value: str | None) -> Any:
    """The value of a JSON text; the text itself where Python cannot hold the value: nested too deep, or a number of thousands of
    digits. A list must not break over it."""
    if value is None:
        return None
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def job_of(row: Row, codec: Codec) -> Job:
    """A row of `get_job` or `list_jobs`."""

    def time(name: str) -> datetime | None:
        return None if row[name] is None else codec.time(row[name])

    lease = None
    if row["worker_id"] is not None:
        lease = LeaseInfo(
            row["worker_id"],
            row["attempt"],
            codec.time(row["expires_at"]),
            bool(row["claim_started"]),
            time("cancel_requested_at"),
        )
    return Job(
        id=codec.uuid(row["id"]),
        tenant_id=row["tenant_id"],
        kind=row["kind"],
        queue=row["queue"],
        goal=row["goal"],
        payload=_json(row["payload"]),
        status=Status(row["status"]),
        version=row["head"],
        priority=row["priority"],
        attempt=row["attempt"],
        retry_count=row["retry_count"],
        max_retries=row["max_retries"],
        run_at=codec.time(row["run_at"]),
        next_retry_at=time("next_retry_at"),
        deadline=time("deadline"),
        idempotency_key=row["idempotency_key"],
        origin_id=None if row["origin_id"] is None else codec.uuid(row["origin_id"]),
        origin_kind=row["origin_kind"],
        result=_json(row["result"]),
        error_message=row["error_message"],
        error_kind=row["error_kind"],
        note=_json(row["note"]),
        created_at=codec.time(row["created_at"]),
        updated_at=codec.time(row["updated_at"]),
        started_at=time("started_at"),
        finished_at=time("finished_at"),
        state=JobState(
            _json(row["checkpoint"]),
            row["progress"],
            row["progress_text"],
            row["tokens"] or 0,
            cost_of(row["cost"]),
            row["cursor"],
        ),
        lease=lease,
        waits=tuple(wait_of(w, codec) for w in _json(row["waits"]) or ()),
        due_at=time("due_at"),
        concurrency_key=row["concurrency_key"] or row["handler_key"],
        max_concurrent=row["max_concurrent"],
        held=bool(row["held"]),
        parent_id=None if row["parent_id"] is None else codec.uuid(row["parent_id"]),
        agent_id=row["agent_id"],
        session_id=row["session_id"],
        tags=tuple(_json(row["tags"]) or ()),
        unique_key=row["unique_key"],
        unique_until=time("unique_until"),
        pruned_at=time("pruned_at"),
    )


def wait_of(item: Row, codec: Codec) -> Wait:
    """A row of `read_wait`, or an item of the JSON array that is column `waits` of `get_job`."""

    def time(name: str) -> datetime | None:
        value = item[name]
        if isinstance(value, str):  # PostgreSQL writes a timestamp into JSON as ISO 8601
            try:
                return datetime.fromisoformat(value)
            except ValueError:  # a superuser's: beyond what can be read
                return FIRST_MOMENT if value.startswith("-") or value.endswith("BC") else LAST_MOMENT
        return None if value is None else codec.time(value)

    return Wait(item["key"], item["kind"], time("until"), item["subject_id"], time("answered_at"))


def claimed_job_of(row: Iterable[Any], codec: Codec, *, worker_id: str, expires_at: datetime) -> ClaimedJob:
    """A row of `claim`, whose columns stand in this order: to ask for each by its name would double what it costs."""
    (id, attempt, kind, queue, goal, payload, priority, version, retry_count, max_retries, lost_starts, idempotency_key,
     deadline, claimed_at, waited, suspicion, key) = row  # fmt: skip
    return ClaimedJob(
        Lease(codec.uuid(id), attempt, worker_id),
        kind,
        queue,
        goal,
        payload,
        priority,
        version,
        retry_count,
        max_retries,
        lost_starts,
        idempotency_key,
        None if deadline is None else codec.time(deadline),
        codec.time(claimed_at),
        expires_at,
        waited,
        suspicion,
        key,
    )


def claim_note(worker_id: str, version: str | None) -> str:
    """The payload of `run_started`, as JSON."""
    return json.dumps({"worker": worker_id} | ({} if version is None else {"version": version}))


def event_of(row: Row, codec: Codec) -> Event:
    """A row of `job_events`."""
    return Event(
        job_id=codec.uuid(row["job_id"]),
        version=row["version"],
        type=row["type"],
        at=codec.time(row["created_at"]),
        payload=_json(row["payload"]),
        attempt=row["attempt"],
        previous_status=None if row["from_status"] is None else Status(row["from_status"]),
        new_status=None if row["to_status"] is None else Status(row["to_status"]),
        event_id=None if row["event_id"] is None else codec.uuid(row["event_id"]),
    )


def run_of(row: Row, codec: Codec) -> RunRecord:
    """A row of `job_runs`."""
    return RunRecord(
        job_id=codec.uuid(row["job_id"]),
        attempt=row["attempt"],
        worker_id=row["worker_id"],
        started_at=codec.time(row["started_at"]),
        finished_at=codec.time(row["finished_at"]),
        outcome=Status(row["outcome"]),
        error_message=row["error_message"],
        error_kind=row["error_kind"],
    )


def approval_of(row: Row, codec: Codec) -> Approval:
    """A row of `get_approval` or `list_approvals`."""
    return Approval(
        id=codec.uuid(row["id"]),
        tenant_id=row["tenant_id"],
        job_id=codec.uuid(row["job_id"]),
        key=row["key"],
        kind=row["kind"],
        title=row["title"],
        payload=_json(row["payload"]),
        payload_digest=row["payload_digest"],
        requester=row["requester"],
        assignees=codec.texts(row["assignees"]),
        status=ApprovalStatus(row["status"]),
        on_expiry=row["on_expiry"],
        on_deny=row["on_deny"],
        requested_at=codec.time(row["requested_at"]),
        expires_at=None if row["expires_at"] is None else codec.time(row["expires_at"]),
        decided_at=None if row["decided_at"] is None else codec.time(row["decided_at"]),
        decided_by=row["decided_by"],
        decided_via=row["decided_via"],
        comment=row["comment"],
        edited=bool(row["edited"]),
        decision_payload=_json(row["decision_payload"]),
        job_kind=row["job_kind"],
        job_status=row["job_status"],
    )


def signal_of(row: Row, codec: Codec) -> Signal:
    """A row of `signals`."""
    return Signal(
        id=codec.uuid(row["id"]),
        tenant_id=row["tenant_id"],
        job_id=codec.uuid(row["job_id"]),
        key=row["key"],
        payload=_json(row["payload"]),
        caller_id=row["caller_id"],
        actor=row["actor"],
        via=row["via"],
        created_at=codec.time(row["created_at"]),
        consumed_at=None if row["consumed_at"] is None else codec.time(row["consumed_at"]),
        wait_key=row["wait_key"],
        refused=row["refused"],
    )


def signal_note(signal: Signal, *, agent_id: str | None = None, at_start: bool = False) -> str:
    """The payload of `signal_received`, as JSON. key: that of the wait which has taken it; without one it is pending. agent_id:
    of the agent that it was sent to. at_start: the job has it before its first attempt: `ctx.signals` shows it."""
    note = {"signal": str(signal.id), "subject": signal.key}
    if signal.wait_key is not None:
        note["key"] = signal.wait_key
    note |= {"actor": signal.actor, "via": signal.via}
    if agent_id is not None:
        note["agent"] = agent_id
    if at_start:  # a text: what reads the beginning of a payload finds no key of its own in there
        note["payload"] = json.dumps(signal.payload, ensure_ascii=False)
    return json.dumps(note, ensure_ascii=False)


def agent_signal_of(row: Row, codec: Codec) -> AgentSignal:
    """A row of `agent_signals`, with `expired`."""

    def time(name: str) -> datetime | None:
        return None if row[name] is None else codec.time(row[name])

    return AgentSignal(
        id=codec.uuid(row["id"]),
        tenant_id=row["tenant_id"],
        agent_id=row["agent_id"],
        key=row["key"],
        payload=_json(row["payload"]),
        caller_id=row["caller_id"],
        actor=row["actor"],
        via=row["via"],
        created_at=codec.time(row["created_at"]),
        expires_at=time("expires_at"),
        consumed_by_job_id=None if row["consumed_by_job_id"] is None else codec.uuid(row["consumed_by_job_id"]),
        consumed_at=time("consumed_at"),
        expired=bool(row["expired"]),
    )


def worker_of(row: Row, codec: Codec) -> WorkerInfo:
    """A row of `list_workers`."""
    return WorkerInfo(
        id=row["id"],
        host=row["host"],
        pid=row["pid"],
        queues=codec.texts(row["queues"]),
        kinds=codec.texts(row["kinds"]),
        concurrency=row["concurrency"],
        state=WorkerState(row["state"]),
        started_at=codec.time(row["started_at"]),
        heartbeat_at=codec.time(row["heartbeat_at"]),
        alive=bool(row["alive"]),
        held=row["held"],
        accounts=json.loads(row["accounts"]),
        command=None if row["command"] is None else WorkerCommand(row["command"]),
        hung=row["hung"],
        blocked=row["blocked"],
        grace=codec.seconds(row["grace"]),
        version=row["version"],
    )


def figures_of(jobs: Iterable[Row], approvals: Row, codec: Codec) -> Figures:
    """The rows of `live_jobs`, and that of `pending_approvals`."""
    live = (
        LiveJobs(row["kind"], row["queue"], Status(row["status"]), row["jobs"], row["oldest_ready"]) for row in jobs
    )
    return Figures(codec.time(approvals["now"]), tuple(live), approvals["pending"], approvals["oldest"])


def decided_of(row: Row, codec: Codec) -> Decided:
    """A row of `decided_approvals`."""
    at = codec.time(row["decided_at"])
    return Decided(codec.uuid(row["id"]), ApprovalStatus(row["status"]), row["decided_via"], at, row["waited"])
