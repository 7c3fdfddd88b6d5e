"""What must hold for every job, whatever was killed, as far as the data of the database shows it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from perdure.model.approvals import Approval, ApprovalStatus
from perdure.model.batches import batch_in
from perdure.model.events import Event
from perdure.model.jobs import MAX_LOST_STARTS, Job, RunRecord
from perdure.model.states import FAILURES, LEASED, TRANSITIONS, Status, transition_event
from perdure.model.waits import CODE
from perdure.runtime.client.client import Client

NOT_BY_HOLDER = frozenset(
    {"agent_message", "approval_decided", "cancel_requested", "job_edited", "made_due", "signal_received"}
)
"""Events besides transitions that not only the holder of the lease may write."""
RECORDS = ("node_finished", "tool_returned")


@dataclass(frozen=True)
class JobData:
    """Everything that the database has about one job."""

    job: Job
    events: list[Event]
    runs: list[RunRecord]
    approvals: list[Approval]

    @property
    def moves(self) -> list[Event]:
        """The transitions."""
        return [e for e in self.events if e.new_status is not None]

    def keys(self, *types: str) -> list[str]:
        """The keys of the events of these types, in order."""
        return [key for e in self.events if e.type in types and (key := key_of(e)) is not None]

    def attempts(self) -> Iterator[tuple[Event, Event | None]]:
        """Each attempt's first event and the event that ended it (None: it has not ended)."""
        begun: Event | None = None
        for move in self.moves:
            if begun is not None and move.new_status not in LEASED:
                yield begun, move
                begun = None
            if move.type == "run_started":
                begun = move
        if begun is not None:
            yield begun, None

    def log(self) -> str:
        """The job and its log as text, to find out what went wrong."""
        lines = [f"{self.job}"]
        lines += [
            f"  {e.version:3} {e.at} attempt {e.attempt} {e.type} {e.previous_status or ''}>{e.new_status or ''}"
            f" {json.dumps(e.payload)[:300]}"
            for e in self.events
        ]
        return "\n".join([*lines, *(f"  {row}" for row in (*self.runs, *self.approvals))])


def key_of(event: Event) -> str | None:
    """The key of the call that an event is about."""
    key = event.payload.get("key") if isinstance(event.payload, dict) else None
    return key if isinstance(key, str) else None


async def read_job(client: Client, job_id: UUID) -> JobData:
    """Read everything about one job."""
    approvals: list[Approval] = []
    cursor: str | None = None
    while True:
        page = await client.approvals.list(status=(), job_id=job_id, limit=200, cursor=cursor)
        approvals += page.items
        if (cursor := page.next_cursor) is None:
            break
    return JobData(
        await client.jobs.get(job_id), await client.jobs.events(job_id), await client.jobs.runs(job_id), approvals
    )


def problems(data: JobData) -> Iterator[str]:
    """What is wrong with a job, if anything, a line each."""
    for part in (_of_the_log, _of_the_row, _of_keys, _of_attempts, _of_runs, _of_waits, _of_rest):
        yield from part(data)


def _of_the_log(data: JobData) -> Iterator[str]:
    """Versions are dense from 1, the transitions are legal and in a chain, and nothing follows the end."""
    if [e.version for e in data.events] != list(range(1, len(data.events) + 1)):
        yield "a gap: versions are not dense from 1"
    doubled = [str(id) for id, n in Counter(e.event_id for e in data.events if e.event_id).items() if n > 1]
    if doubled:
        yield f"events were written twice: {doubled}"
    status: Status | None = None
    for move in data.moves:
        new = move.new_status
        assert new is not None  # that makes it a move
        if move.previous_status != status or (status is not None and new not in TRANSITIONS[status]):
            yield f"version {move.version} goes from {move.previous_status} to {new}, but it was {status}"
        if move.type != transition_event(status, new):
            yield f"version {move.version} is called {move.type}"
        status = new
    if status is not data.job.status:
        yield f"the log says {status}, the row says {data.job.status}"
    ends = [e.version for e in data.moves if e.new_status is not None and e.new_status.terminal]
    if ends not in ([], [len(data.events)]):
        yield f"something was written after the end: {ends}"


def _of_the_row(data: JobData) -> Iterator[str]:
    """The row fits its state, and its counters are those of the log."""
    job, status = data.job, data.job.status
    if job.version != len(data.events):
        yield f"the row's version is {job.version}, the log has {len(data.events)} events"
    most = 0 if job.max_retries is None else job.max_retries  # decided by the first claim
    if not 0 <= job.retry_count <= most:
        yield f"{job.retry_count} retries of at most {most}"
    counts = [e.payload["retry_count"] for e in data.events if e.type == "job_retrying"]
    if job.retry_count != (counts[-1] if counts else 0):
        yield f"the row counts {job.retry_count} retries, the log {counts}"
    if sorted(counts) != counts or any(b - a > 1 for a, b in zip([0, *counts], counts, strict=False)):
        yield f"retries were counted wrongly: {counts}"
    if (job.finished_at is not None) != status.terminal:
        yield f"finished_at is {job.finished_at} in {status}"
    if (job.error_message is not None) != (status in FAILURES):
        yield f"error_message is {job.error_message!r} in {status}"
    if (job.next_retry_at is not None) != (status is Status.RETRY):
        yield f"next_retry_at is {job.next_retry_at} in {status}"
    if job.result is not None and status is not Status.COMPLETED:
        yield f"a result in {status}"
    if status is Status.DEADLETTER and job.retry_count < most and _lost_starts(data) < MAX_LOST_STARTS:
        yield f"DEADLETTER with retries left: {job.retry_count} of {most}"
    if (job.lease is not None) != status.leased:
        yield f"claims in {status}: {job.lease}"
    if job.due_at is not None and (status.terminal or status.leased):
        yield f"queue rows in {status}, due {job.due_at}"


def _lost_starts(data: JobData) -> int:
    """Attempts that were lost before they began: the last of them may have ended the job."""
    runs = {run.attempt for run in data.runs}
    lost = [first for first, last in data.attempts() if last is not None and first.attempt not in runs]
    return len(lost) + (data.job.status is Status.DEADLETTER)


def _of_keys(data: JobData) -> Iterator[str]:
    """What is recorded is recorded once."""
    recorded = Counter(data.keys(*RECORDS))
    for what, counts in (
        ("recorded", recorded),
        ("asked", Counter(data.keys("approval_requested"))),
        ("begun to wait for", _but_for_code(data, "wait_started", "approval_requested")),
        ("answered", _but_for_code(data, "wait_completed")),
    ):
        if doubled := [key for key, n in counts.items() if n > 1]:
            yield f"{what} more than once: {doubled}"
    if uncalled := set(data.keys("tool_returned")) - set(data.keys("tool_called")):
        yield f"returned without being called: {uncalled}"
    last = {key_of(e): e.version for e in data.events if e.type in RECORDS}
    for event in data.events:
        key = key_of(event)
        if key in last and event.version > last[key] and event.type != "node_started":
            yield f"'{key}' continued after it was recorded: {event.type}"
    failed: set[str] = set()
    for event in data.events:
        key = key_of(event)
        if key is None:
            continue
        match event.type:
            case "failure_caught":
                failed.add(key)
            case "failure_retried":
                failed.discard(key)
            case "tool_called" | "tool_returned" | "node_finished" if key in failed:
                yield f"'{key}' was called again after its failure was recorded"
            case _:
                pass


def _but_for_code(data: JobData, *types: str) -> Counter[str | None]:
    """The keys of events of waits. A job may wait for code more than once."""
    return Counter(key_of(e) for e in data.events if e.type in types and e.payload.get("kind") != CODE.name)


def _of_attempts(data: JobData) -> Iterator[str]:
    """Attempts are numbered from 1, and each writes between its beginning and its end only: while it holds the lease."""
    begun = [e.attempt for e in data.moves if e.type == "run_started"]
    if begun != list(range(1, len(begun) + 1)) or data.job.attempt != len(begun):
        yield f"attempts {begun}, the row says {data.job.attempt}"
    spans = {
        first.attempt: (first.version, last.version if last else len(data.events) + 1)
        for first, last in data.attempts()
    }
    begun_at = min((first for first, _ in spans.values()), default=len(data.events) + 1)
    for event in data.events:
        if event.new_status is not None or event.type in NOT_BY_HOLDER:
            continue
        if (
            event.version < begun_at
            and event.attempt == 0
            and ("copied_from" in event.payload or batch_in(event.payload.get("subject")) is not None)
        ):
            continue  # what a fork or the callback of a batch begins with
        first, last = spans.get(event.attempt, (0, 0))
        if not first < event.version < last:
            yield f"version {event.version} ({event.type}) was written outside its attempt {event.attempt}"


def _of_runs(data: JobData) -> Iterator[str]:
    """One row for each attempt that ended after it had begun user code, and no other."""
    runs = {run.attempt: run for run in data.runs}
    retries = 0
    for first, last in data.attempts():
        assert first.attempt is not None  # a claim is an attempt
        run = runs.pop(first.attempt, None)
        before, retries = retries, last.payload.get("retry_count", retries) if last else retries
        if last is None:
            if run is not None:
                yield f"attempt {first.attempt} has not ended and has a run row"
            continue
        wrote = any(
            e.attempt == first.attempt and e.new_status is None and e.type not in NOT_BY_HOLDER for e in data.events
        )
        must = wrote or retries > before or last.new_status not in (Status.RETRY, Status.CANCELLED, Status.DEADLETTER)
        if must and run is None:
            yield f"attempt {first.attempt} ended {last.new_status} without a run row"
        if run is None:
            continue
        spared = "suspicion" in last.payload
        expired = last.payload.get("reason") == "lease_expired"
        if expired and last.new_status is Status.RETRY and retries == before and not spared:
            yield f"attempt {first.attempt} never started and has a run row"
        if (run.outcome, run.worker_id) != (last.new_status, first.payload["worker"]):
            yield f"run row {run} of attempt {first.attempt}, which ended {last.new_status}"
    if runs:
        yield f"run rows of attempts that did not happen: {sorted(runs)}"


def _of_waits(data: JobData) -> Iterator[str]:
    """Open waits are those that began in the log and did not end."""
    opened: set[str | None] = set()
    for event in data.events:
        if event.type in ("wait_started", "approval_requested"):
            opened.add(key_of(event))
        elif event.type == "wait_completed":
            opened.discard(key_of(event))
    expected = set() if data.job.status.terminal else opened
    if {w.key for w in data.job.waits} != expected:
        yield f"open waits {[w.key for w in data.job.waits]}, the log says {expected or 'none'}"
    decided = {str(approval.id) for approval in data.approvals if not approval.pending}
    for wait in data.job.waits:  # read after the approvals
        if wait.subject_id in decided and wait.answered_at is None:
            yield f"approval {wait.subject_id} is decided, and the wait '{wait.key}' is not answered"


def _of_rest(data: JobData) -> Iterator[str]:
    """What changes while a job runs fits its log; approvals are decided once, and none outlives its job."""
    state = data.job.state
    own = [e for e in data.events if "copied_from" not in e.payload]  # a fork did not use what the old job used
    used = sum(e.payload["tokens"] for e in own if e.type == "usage_recorded")
    if state.tokens != used:
        yield f"{state.tokens} tokens, the log says {used}"
    saved = [e.payload["state"] for e in data.events if e.type == "checkpoint_saved"]
    if state.checkpoint != (saved[-1] if saved else None):
        yield f"the checkpoint is {state.checkpoint}, the log says {saved}"
    asked = {UUID(e.payload["approval"]) for e in data.events if e.type == "approval_requested"}
    if asked != {a.id for a in data.approvals}:
        yield f"approvals {sorted(str(a.id) for a in data.approvals)}, the log says {sorted(map(str, asked))}"
    decided = Counter(UUID(e.payload["approval"]) for e in data.events if e.type == "approval_decided")
    for approval in data.approvals:
        final = approval.status not in (ApprovalStatus.PENDING, ApprovalStatus.CANCELLED)
        if decided[approval.id] != final:
            yield f"approval {approval.id} is {approval.status} and was decided {decided[approval.id]} times"
        if data.job.status.terminal and approval.pending:
            yield f"approval {approval.id} is open, its job has ended"
