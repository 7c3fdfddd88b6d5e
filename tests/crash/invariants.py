"""What must hold for every job at every moment, whatever was killed: checked with the database's own rows alone.

No statement of perdure's is used here: asyncpg and sqlite3 read the tables in one snapshot, so a check may run while workers
work. What users can see is checked by `perdure.chaos.invariants`; the rest, transient rows, is checked here.
Then perdure's own fsck must agree: judges that know nothing of each other.
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
from perdure.chaos import invariants as chaos
from perdure.model.states import LEASED, WITHOUT_RESULT, Status
from perdure.store import rows as shapes
from perdure.store.postgres.engine.codec import CODEC as POSTGRES
from perdure.store.rows import Codec
from perdure.store.sqlite.engine.codec import CODEC as SQLITE

Row = dict[str, Any]

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
_SUSPENDED = (Status.PARKED, Status.WAITING_FOR_APPROVAL)


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
    facts: dict[UUID, chaos.JobData]

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
        self.facts = snapshot.facts[job_id]

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
        """The row and the log, for the message of a failed test."""
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
        now, raw = await asyncio.to_thread(_read_sqlite, url.removeprefix("sqlite:///"))
        facts = _facts(raw, SQLITE)
        _read_times(raw)
    else:
        now, raw = await _read_postgres(url)
        facts = _facts(raw, POSTGRES)
    tables = {name: [_plain(dict(row)) for row in rows] for name, rows in raw.items()}
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
        facts,
    )


def _read_sqlite(path: str) -> tuple[float, dict[str, list[Row]]]:
    with closing(sqlite3.connect(path, isolation_level=None, timeout=20)) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("pragma query_only = on")
        connection.execute("begin")
        tables = {name: [dict(row) for row in connection.execute(f"select * from {name}")] for name in _TABLES}
        now = connection.execute("select (julianday('now') - 2440587.5) * 86400.0").fetchone()[0]
        connection.execute("rollback")
    return now, tables


def _read_times(tables: dict[str, list[Row]]) -> None:
    for rows in tables.values():
        for row in rows:
            for name in row:
                if (name.endswith("_at") or name in ("until", "deadline")) and row[name] is not None:
                    row[name] = row[name] / 1_000_000


async def _read_postgres(url: str) -> tuple[float, dict[str, list[Row]]]:
    connection = await asyncpg.connect(url, timeout=20)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            tables = {
                name: [dict(row) for row in await connection.fetch(f"select * from perdure.{name}")] for name in _TABLES
            }
            now = await connection.fetchval("select extract(epoch from clock_timestamp())::float8")
    finally:
        await connection.close()
    return now, tables


def _facts(raw: dict[str, list[Row]], codec: Codec) -> dict[UUID, chaos.JobData]:
    """The rows as the harness that users run sees them."""
    of: dict[str, dict[str, list[Row]]] = {}
    for name, rows in raw.items():
        for row in rows if name != "jobs" else ():
            of.setdefault(str(row["job_id"]), {}).setdefault(name, []).append(row)
    found = {}
    for job in raw["jobs"]:
        parts = of.get(str(job["id"]), {})
        claim = parts.get("job_claims", [dict.fromkeys(_CLAIM)])[0]
        more = {
            **parts.get("job_state", [dict.fromkeys(_STATE)])[0],
            "cursor": None,
            "head": claim.get("version") or job["version"],
            "claim_started": claim.get("started"),
            **{name: claim[name] for name in _CLAIM},
            "waits": json.dumps(parts.get("job_waits", []), default=str),
            "due_at": parts.get("job_queue", [{"run_at": None}])[0]["run_at"],
            "held": parts.get("job_queue", [{"held": None}])[0]["held"],
            "handler_key": parts.get("job_queue", [{"concurrency_key": None}])[0]["concurrency_key"],
        }
        events = [shapes.event_of(row, codec) for row in parts.get("job_events", ())]
        asked = [{**row, "job_kind": None, "job_status": None} for row in parts.get("approvals", ())]
        found[UUID(str(job["id"]))] = chaos.JobData(
            shapes.job_of({**more, **job}, codec),
            sorted(events, key=lambda event: event.version),
            [shapes.run_of(row, codec) for row in parts.get("job_runs", ())],
            [shapes.approval_of(row, codec) for row in asked],
        )
    return found


_CLAIM = ("worker_id", "expires_at", "cancel_requested_at")
_STATE = ("checkpoint", "progress", "progress_text", "tokens", "cost")


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
    a future time or for an answer. by_fsck: False where the schema is not one that fsck knows.
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
        return [finding async for finding in app.database.fsck() if not finding.note]


def problems(case: Case) -> Iterator[str]:
    """What is wrong with a job, if anything: what its users can see, and what only the tables show."""
    yield from chaos.problems(case.facts)
    yield from _of_the_row(case)
    yield from _of_transient_rows(case)


def _of_the_row(case: Case) -> Iterator[str]:
    """What the store's own reading hides: the row's version while it is leased, the small tables that follow the row."""
    head = case.moves[-1]["version"] if case.status.leased and case.moves else len(case.events)
    if case.job["version"] != head:
        yield f"the row's own version is {case.job['version']}, the log says {head}"
    if bool(case.failures) != (case.status in WITHOUT_RESULT):
        yield f"job_failures has {len(case.failures)} rows in {case.status}"


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
    if status in (Status.PENDING, Status.RETRY):
        return float(job["run_at"] if status is Status.PENDING else job["next_retry_at"])
    if status not in _SUSPENDED:
        return None
    if any(w["kind"] == "code" and w["answered_at"] is None for w in case.waits):
        return None if job["deadline"] is None else float(job["deadline"])  # nothing else wakes it
    decided = {str(id) for id, approval in case.approvals.items() if approval["status"] != "PENDING"}
    answered = [w for w in case.waits if w["answered_at"] is not None or w["subject_id"] in decided]
    if answered or not case.waits:
        return case.now
    moments = [w["until"] for w in case.waits if w["until"] is not None]
    if job["deadline"] is not None:
        moments.append(job["deadline"])
    return float(min(moments)) if moments else None
