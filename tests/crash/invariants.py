"""What must hold for every job at every moment, whoever was killed: proved from the database's own rows alone.

Nothing of perdure's stores is used for that: asyncpg and sqlite3 read the tables in one snapshot, so a check may run while
workers work. Then perdure's own fsck must agree: two judges that know nothing of each other.
"""

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from perdure import App, Finding
from perdure.model.states import FAILURES, LEASED, TRANSITIONS, Status, transition_event

Row = dict[str, Any]

MOST_LOST_STARTS = 20

_TABLES = (
    "jobs",
    "job_events",
    "job_queue",
    "job_claims",
    "job_waits",
    "job_runs",
    "job_failures",
    "job_state",
    "approvals",
)
_IDS = ("id", "job_id", "approval_id", "event_id")
_JSON = ("payload", "result", "note", "decision_payload", "checkpoint")
_NOT_THE_HOLDERS = frozenset({"approval_decided", "cancel_requested", "made_due"})
_SUSPENDED = (Status.PARKED, Status.WAITING_FOR_APPROVAL)
S = Status


@dataclass(frozen=True)
class Snapshot:
    """All rows of one moment, by job; times are seconds since 1970."""

    now: float
    jobs: dict[UUID, Row]
    events: dict[UUID, list[Row]]
    queue: dict[UUID, list[Row]]
    claims: dict[UUID, list[Row]]
    waits: dict[UUID, list[Row]]
    runs: dict[UUID, list[Row]]
    failures: dict[UUID, list[Row]]
    states: dict[UUID, list[Row]]
    approvals: dict[UUID, list[Row]]

    def statuses(self) -> Counter[Status]:
        """How many jobs are in each state."""
        return Counter(Status(job["status"]) for job in self.jobs.values())

    def of(self, job_id: UUID) -> "Case":
        """Everything about one job."""
        return Case(self, job_id)


class Case:
    """Everything the database says about one job."""

    def __init__(self, snapshot: Snapshot, job_id: UUID) -> None:
        self.id = job_id
        self.now = snapshot.now
        self.job = snapshot.jobs[job_id]
        self.status = Status(self.job["status"])
        self.events = snapshot.events.get(job_id, [])
        self.moves = [e for e in self.events if e["to_status"] is not None]
        self.queue = snapshot.queue.get(job_id, [])
        self.claims = snapshot.claims.get(job_id, [])
        self.waits = snapshot.waits.get(job_id, [])
        self.runs = snapshot.runs.get(job_id, [])
        self.failures = snapshot.failures.get(job_id, [])
        self.states = snapshot.states.get(job_id, [])
        self.approvals = {a["id"]: a for a in snapshot.approvals.get(job_id, [])}

    def keys(self, *types: str) -> list[str]:
        """The keys of the events of these types, in order."""
        return [e["payload"]["key"] for e in self.events if e["type"] in types]

    def first(self, type: str, key: str) -> Row:
        """The first event of this type and key."""
        return next(e for e in self.events if e["type"] == type and e["payload"].get("key") == key)

    def attempts(self) -> Iterator[tuple[Row, Row | None]]:
        """Each attempt's first event and the event that ended it (None: it goes on)."""
        begun: Row | None = None
        for move in self.moves:
            if begun is not None and Status(move["to_status"]) not in LEASED:
                yield begun, move
                begun = None
            if move["type"] == "run_started":
                begun = move
        if begun is not None:
            yield begun, None

    def log(self) -> str:
        """The row and the log, for whoever has to find out what went wrong."""
        lines = [f"job {self.id} {self.job['kind']}: {self.job}"]
        lines += [
            f"  {e['version']:3} attempt {e['attempt']} {e['type']} {e['from_status'] or ''}>{e['to_status'] or ''}"
            f" {json.dumps(e['payload'])[:300]}"
            for e in self.events
        ]
        for name in ("queue", "claims", "waits", "runs"):
            lines += [f"  {name}: {row}" for row in getattr(self, name)]
        lines += [f"  approval: {row}" for row in self.approvals.values()]
        return "\n".join(lines)


async def look(url: str) -> Snapshot:
    """Read everything, in one snapshot."""
    if url.startswith("sqlite:///"):
        now, tables = await asyncio.to_thread(_read_sqlite, url.removeprefix("sqlite:///"))
    else:
        now, tables = await _read_postgres(url)
    by_job = {name: _grouped(rows) for name, rows in tables.items() if name != "jobs"}
    return Snapshot(
        now,
        {job["id"]: job for job in tables["jobs"]},
        {id: sorted(rows, key=lambda e: e["version"]) for id, rows in by_job["job_events"].items()},
        by_job["job_queue"],
        by_job["job_claims"],
        by_job["job_waits"],
        by_job["job_runs"],
        by_job["job_failures"],
        by_job["job_state"],
        by_job["approvals"],
    )


def _read_sqlite(path: str) -> tuple[float, dict[str, list[Row]]]:
    with closing(sqlite3.connect(path, isolation_level=None, timeout=20)) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("pragma query_only = on")
        connection.execute("begin")
        tables = {name: [_plain(dict(row)) for row in connection.execute(f"select * from {name}")] for name in _TABLES}
        now = connection.execute("select (julianday('now') - 2440587.5) * 86400.0").fetchone()[0]
        connection.execute("rollback")
    for rows in tables.values():
        for row in rows:
            for name in row:
                if (name.endswith("_at") or name in ("until", "deadline")) and row[name] is not None:
                    row[name] = row[name] / 1_000_000
    return now, tables


async def _read_postgres(url: str) -> tuple[float, dict[str, list[Row]]]:
    connection = await asyncpg.connect(url, timeout=20)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            tables = {
                name: [_plain(dict(row)) for row in await connection.fetch(f"select * from perdure.{name}")]
                for name in _TABLES
            }
            now = await connection.fetchval("select extract(epoch from clock_timestamp())::float8")
    finally:
        await connection.close()
    return now, tables


def _plain(row: Row) -> Row:
    for name, value in row.items():
        if isinstance(value, datetime):
            row[name] = value.timestamp()
        elif name in _IDS and value is not None and name != "key":
            row[name] = UUID(str(value))
        elif name in _JSON and value is not None:
            row[name] = json.loads(value)
    return row


def _grouped(rows: list[Row]) -> dict[UUID, list[Row]]:
    groups: dict[UUID, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["job_id"], []).append(row)
    return groups


async def check(
    url: str, acknowledged: Collection[UUID] = (), *, at_rest: bool = False, by_fsck: bool = True
) -> Snapshot:
    """Read the database and prove every invariant; the snapshot is returned for further questions.

    acknowledged: ids of jobs whose enqueue returned. at_rest: there is nothing to do now, each job has ended or waits for
    a moment to come or for somebody. by_fsck: False where the schema is not one that fsck knows.
    """
    snapshot = await look(url)
    missing = set(acknowledged) - set(snapshot.jobs)
    assert not missing, f"{len(missing)} acknowledged jobs are gone: {sorted(missing)[:5]}"
    for table in (snapshot.events, snapshot.queue, snapshot.claims, snapshot.waits, snapshot.runs, snapshot.approvals):
        assert table.keys() <= snapshot.jobs.keys(), "rows of jobs that do not exist"
    for job_id in snapshot.jobs:
        case = snapshot.of(job_id)
        wrong = list(problems(case))
        if at_rest and not case.status.terminal and not _waits_legitimately(case):
            wrong.append(f"there is nothing to do any more, and it is {case.status}")
        assert not wrong, "\n".join([*wrong, case.log()])
    if by_fsck:
        found = await fsck(url)
        assert not found, "\n".join(map(str, found))
    return snapshot


async def fsck(url: str) -> list[Finding]:
    """What perdure itself says is wrong."""
    async with App(url, migrate=False) as app:
        return [finding async for finding in app.fsck() if not finding.note]


def problems(case: Case) -> Iterator[str]:
    """What is wrong with a job, if anything."""
    for part in (_of_the_log, _of_the_row, _of_transient_rows, _of_keys, _of_attempts, _of_runs, _of_waits, _of_rest):
        yield from part(case)


def _of_the_log(case: Case) -> Iterator[str]:
    """Versions are dense from 1, the transitions are legal and in a chain, and nothing follows the end."""
    if [e["version"] for e in case.events] != list(range(1, len(case.events) + 1)):
        yield "versions are not dense from 1"
    doubled = [id for id, n in Counter(e["event_id"] for e in case.events if e["event_id"]).items() if n > 1]
    if doubled:
        yield f"events were written twice: {doubled}"
    status: Status | None = None
    for move in case.moves:
        new = Status(move["to_status"])
        if move["from_status"] != status or (status is not None and new not in TRANSITIONS[status]):
            yield f"version {move['version']} goes from {move['from_status']} to {new}, but it was {status}"
        if move["type"] != transition_event(status, new):
            yield f"version {move['version']} is called {move['type']}"
        status = new
    if status is not case.status:
        yield f"the log says {status}, the row says {case.status}"
    ends = [e["version"] for e in case.moves if Status(e["to_status"]).terminal]
    if ends not in ([], [len(case.events)]):
        yield f"something was written after the end: {ends}"


def _of_the_row(case: Case) -> Iterator[str]:
    """The row fits its state, and its counters are those that the log tells."""
    job, status = case.job, case.status
    head = case.moves[-1]["version"] if status.leased else len(case.events)
    if job["version"] != head:
        yield f"the row's version is {job['version']}, the log says {head}"
    if not 0 <= job["retry_count"] <= job["max_retries"]:
        yield f"{job['retry_count']} retries of at most {job['max_retries']}"
    told = [e["payload"]["retry_count"] for e in case.events if e["type"] == "job_retrying"]
    if job["retry_count"] != (told[-1] if told else 0):
        yield f"the row counts {job['retry_count']} retries, the log {told}"
    if sorted(told) != told or any(b - a > 1 for a, b in zip([0, *told], told, strict=False)):
        yield f"retries were counted wrongly: {told}"
    if (job["finished_at"] is not None) != status.terminal:
        yield f"finished_at is {job['finished_at']} in {status}"
    if (job["error_message"] is not None) != (status in FAILURES):
        yield f"error_message is {job['error_message']!r} in {status}"
    if (job["next_retry_at"] is not None) != (status is S.RETRY):
        yield f"next_retry_at is {job['next_retry_at']} in {status}"
    if job["result"] is not None and status is not S.COMPLETED:
        yield f"a result in {status}"
    if status is S.DEADLETTER and not (
        job["retry_count"] == job["max_retries"] or job["lost_starts"] >= MOST_LOST_STARTS
    ):
        yield f"DEADLETTER with retries left: {job['retry_count']} of {job['max_retries']}"
    if bool(case.failures) != (status in FAILURES):
        yield f"job_failures has {len(case.failures)} rows in {status}"


def _of_transient_rows(case: Case) -> Iterator[str]:
    """A claim exists iff a worker holds the job; a queue row iff it may start or wake by itself."""
    if bool(case.claims) != case.status.leased:
        yield f"{len(case.claims)} claims in {case.status}"
    for claim in case.claims:
        if claim["attempt"] != case.job["attempt"]:
            yield f"the claim is of attempt {claim['attempt']}, the job is at {case.job['attempt']}"
        if claim["version"] != len(case.events):
            yield f"the claim's version is {claim['version']}, the head is {len(case.events)}"
    due = _due(case)
    if bool(case.queue) != (due is not None):
        yield f"{len(case.queue)} queue rows in {case.status}, due {due}"
    elif due is not None:
        queued = case.queue[0]["run_at"]
        if case.status in _SUSPENDED and queued > due + 0.002:
            yield f"it wakes at {queued}, {queued - due:.3f} s too late"


def _waits_legitimately(case: Case) -> bool:
    due = _due(case)
    return not case.status.leased and (due is None or due > case.now)


def _due(case: Case) -> float | None:
    """When the job may start or wake by itself, if it may."""
    job, status = case.job, case.status
    if status in (S.PENDING, S.RETRY):
        return float(job["run_at"] if status is S.PENDING else job["next_retry_at"])
    if status not in _SUSPENDED:
        return None
    decided = [a for w in case.waits if (a := case.approvals.get(w["approval_id"])) and a["status"] != "PENDING"]
    if decided or not case.waits:
        return case.now
    moments = [w["until"] for w in case.waits if w["until"] is not None]
    if job["deadline"] is not None:
        moments.append(job["deadline"])
    return float(min(moments)) if moments else None


def _of_keys(case: Case) -> Iterator[str]:
    """What is recorded is recorded once."""
    recorded = Counter(case.keys("node_finished", "tool_returned"))
    for what, counts in (
        ("recorded", recorded),
        ("asked", Counter(case.keys("approval_requested"))),
        ("begun to wait for", Counter(case.keys("wait_started", "approval_requested"))),
        ("answered", Counter(case.keys("wait_completed"))),
    ):
        if doubled := [key for key, n in counts.items() if n > 1]:
            yield f"{what} more than once: {doubled}"
    returned, calls = set(case.keys("tool_returned")), set(case.keys("tool_called"))
    if returned - calls:
        yield f"returned without being called: {returned - calls}"
    for key in recorded:
        last = next(e for e in case.events if e["type"] in ("node_finished", "tool_returned") and _key(e) == key)
        again = [
            e for e in case.events if _key(e) == key and e["version"] > last["version"] and e["type"] != "node_started"
        ]
        if again:
            yield f"'{key}' went on after it was recorded: {[e['type'] for e in again]}"


def _key(event: Row) -> str | None:
    return event["payload"].get("key") if isinstance(event["payload"], dict) else None


def _of_attempts(case: Case) -> Iterator[str]:
    """Attempts are numbered from 1, and each writes between its beginning and its end only."""
    begun = [e["attempt"] for e in case.moves if e["type"] == "run_started"]
    if begun != list(range(1, len(begun) + 1)) or case.job["attempt"] != len(begun):
        yield f"attempts {begun}, the row says {case.job['attempt']}"
    spans = {
        first["attempt"]: (first["version"], last["version"] if last else len(case.events) + 1)
        for first, last in case.attempts()
    }
    begun_at = min((first for first, _ in spans.values()), default=len(case.events) + 1)
    for event in case.events:
        if event["to_status"] is not None or event["type"] in _NOT_THE_HOLDERS:
            continue
        if event["version"] < begun_at and event["attempt"] == 0 and "copied_from" in event["payload"]:
            continue  # what a fork begins with
        first, last = spans.get(event["attempt"], (0, 0))
        if not first < event["version"] < last:
            yield f"version {event['version']} ({event['type']}) was written outside its attempt {event['attempt']}"


def _of_runs(case: Case) -> Iterator[str]:
    """One row for each attempt that ended after it had begun user code, and no other."""
    runs = {run["attempt"]: run for run in case.runs}
    retries = 0
    for first, last in case.attempts():
        run = runs.pop(first["attempt"], None)
        before, retries = retries, last["payload"].get("retry_count", retries) if last else retries
        if last is None:
            if run is not None:
                yield f"attempt {first['attempt']} goes on and has a run row"
            continue
        wrote = any(
            e["attempt"] == first["attempt"] and e["to_status"] is None and e["type"] not in _NOT_THE_HOLDERS
            for e in case.events
        )
        must = wrote or retries > before or (last["to_status"] not in ("RETRY", "CANCELLED", "DEADLETTER"))
        if must and run is None:
            yield f"attempt {first['attempt']} ended {last['to_status']} without a run row"
        if run is None:
            continue
        if last["payload"].get("reason") == "lease_expired" and last["to_status"] == "RETRY" and retries == before:
            yield f"attempt {first['attempt']} never started and has a run row"
        if (run["outcome"], run["worker_id"]) != (last["to_status"], first["payload"]["worker"]):
            yield f"run row {run} of attempt {first['attempt']}, which ended {last['to_status']}"
    if runs:
        yield f"run rows of attempts that never were: {sorted(runs)}"


def _of_waits(case: Case) -> Iterator[str]:
    """Open waits are those that the log has seen begin and not end."""
    opened = set(case.keys("wait_started", "approval_requested")) - set(case.keys("wait_completed"))
    expected = set() if case.status.terminal else opened
    if {w["key"] for w in case.waits} != expected:
        yield f"open waits {[w['key'] for w in case.waits]}, the log says {sorted(expected)}"


def _of_rest(case: Case) -> Iterator[str]:
    """What changes while a job runs fits its log; approvals are decided once, and none outlives its job."""
    state = case.states[0] if case.states else {"tokens": 0, "checkpoint": None}
    used = sum(e["payload"]["tokens"] for e in case.events if e["type"] == "usage_recorded")
    if state["tokens"] != used:
        yield f"{state['tokens']} tokens, the log says {used}"
    saved = [e["payload"]["state"] for e in case.events if e["type"] == "checkpoint_saved"]
    if state["checkpoint"] != (saved[-1] if saved else None):
        yield f"the checkpoint is {state['checkpoint']}, the log says {saved}"
    asked = {UUID(e["payload"]["approval"]) for e in case.events if e["type"] == "approval_requested"}
    if asked != set(case.approvals):
        yield f"approvals {sorted(case.approvals)}, the log says {sorted(asked)}"
    decided = Counter(UUID(e["payload"]["approval"]) for e in case.events if e["type"] == "approval_decided")
    for id, approval in case.approvals.items():
        if decided[id] != (approval["status"] in ("APPROVED", "DENIED", "EXPIRED")):
            yield f"approval {id} is {approval['status']} and was decided {decided[id]} times"
        if case.status.terminal and approval["status"] == "PENDING":
            yield f"approval {id} is open, its job has ended"
