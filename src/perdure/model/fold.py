"""A job computed from its log: the fold of its events, up to any version."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from perdure.model.cost import ZERO, add_cost, cost_of
from perdure.model.events import Event
from perdure.model.jobs import Job, JobState, Wait
from perdure.model.states import FAILURES, Status
from perdure.model.steps import COPIED
from perdure.model.waits import CODE, TIMER, answers, opened_wait


@dataclass(slots=True)
class Folded:
    """The result of folding a log. Every field equals that of the job's row at the same version, also after SQL typed by hand."""

    version: int = 0
    status: Status = Status.PENDING
    attempt: int = 0
    retry_count: int = 0
    next_retry_at: datetime | None = None
    error_message: str | None = None
    error_kind: str | None = None
    note: dict[str, Any] = field(default_factory=dict)
    created_at: datetime | None = None
    updated_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    cursor: str | None = None
    checkpoint: Any = None
    tokens: int = 0
    cost: Decimal = ZERO
    waits: dict[tuple[str, str], Wait] = field(default_factory=dict)

    def read(self, event: Event) -> None:
        """Apply the next event."""
        self.version = event.version
        payload = event.payload if isinstance(event.payload, dict) else {}
        if event.new_status is not None:
            self._move(event, event.new_status, payload)
        if event.new_status is not None or not self.status.leased:
            self.updated_at = event.at
        match event.type:
            case "node_finished":
                self.cursor = payload.get("key")
            case "checkpoint_saved":
                self.checkpoint = payload.get("state")
            case "usage_recorded" if COPIED not in payload:  # a fork does not count what the old job used
                self.tokens += payload.get("tokens", 0)
                self.cost = add_cost(self.cost, cost_of(payload.get("cost")))
            case "job_edited" if self.status is Status.RETRY:
                self.next_retry_at = _edited_time(payload) or self.next_retry_at
            case "made_due" if self.status is Status.RETRY:
                self.next_retry_at = event.at
            case "made_due":
                self._set_code_waits(event.at)
            case "wait_completed":
                self.waits.pop((payload.get("kind", TIMER.name), payload.get("key", "")), None)
            case _ if not self.status.terminal:
                self._read_wait(event, payload)
            case _:
                pass

    def _move(self, event: Event, status: Status, payload: dict[str, Any]) -> None:
        self.status, self.note = status, payload
        self.attempt = event.attempt or self.attempt
        if event.version == 1:
            self.created_at = event.at
        if (
            status is Status.RUNNING and self.started_at is None and "worker" in payload
        ):  # without a worker, SQL typed by hand set the status, and nothing runs the job
            self.started_at = event.at
        self.retry_count = payload.get("retry_count", self.retry_count)
        self.next_retry_at = _retry_at(event, payload) if status is Status.RETRY else None
        failed = status in FAILURES
        self.error_message = payload.get("error") if failed else None
        self.error_kind = payload.get("error_kind") if failed else None
        if status.terminal:
            self.finished_at = event.at
            self.waits.clear()

    def _set_code_waits(self, answered_at: datetime | None) -> None:
        """All are answered together, and opened again together."""
        for of, wait in self.waits.items():
            if wait.kind == CODE.name:
                self.waits[of] = replace(wait, answered_at=answered_at)

    def _read_wait(self, event: Event, payload: dict[str, Any]) -> None:
        """An event that opens a wait, or that answers one."""
        key = payload.get("key")
        if not isinstance(key, str):
            return
        wait = opened_wait(event.type, {"kind": TIMER.name, **payload}.get)
        if wait is not None:
            if wait.kind == CODE.name:
                self._set_code_waits(None)
            self.waits[wait.kind, key] = wait
            return
        for of, open_wait in self.waits.items():
            if open_wait.key == key and answers(event.type, payload.get, open_wait):
                self.waits[of] = replace(open_wait, answered_at=event.at)


def _retry_at(event: Event, payload: dict[str, Any]) -> datetime | None:
    recorded = payload.get("next_retry_at")
    if isinstance(recorded, str):
        return datetime.fromisoformat(recorded)
    return event.at if payload.get("via") == "reaper" else None  # a reaper's job is due at once


def _edited_time(payload: dict[str, Any]) -> datetime | None:
    """When a job is due since it was edited; None: as before."""
    match payload.get("changes"):
        case {"due_at": [_, str(due)]}:
            return datetime.fromisoformat(due)
        case _:
            return None


def fold(events: Iterable[Event]) -> Folded:
    """Fold the events of one job, from version 1 on and in order."""
    folded = Folded()
    for event in events:
        folded.read(event)
    return folded


def job_at(job: Job, folded: Folded) -> Job:
    """The job as it was at the version that `folded` ends at.

    What the log does not hold is None: progress, the lease (the note of its run_started names the worker) and the due time.
    What never changes is as it is now.
    """
    return replace(
        job,
        version=folded.version,
        status=folded.status,
        attempt=folded.attempt,
        retry_count=folded.retry_count,
        next_retry_at=folded.next_retry_at,
        result=job.result if folded.status is Status.COMPLETED else None,
        error_message=folded.error_message,
        error_kind=folded.error_kind,
        note=folded.note,
        updated_at=folded.updated_at or job.created_at,
        started_at=folded.started_at,
        finished_at=folded.finished_at,
        state=JobState(folded.checkpoint, None, None, folded.tokens, folded.cost, folded.cursor),
        lease=None,
        waits=tuple(folded.waits.values()),
        due_at=None,
    )
