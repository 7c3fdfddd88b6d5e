"""What is wrong with the database, the clock, the workers and jobs that are stuck."""

from __future__ import annotations

import re
import shlex
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from perdure.model.errors import PerdureError
from perdure.model.figures import LiveJobs
from perdure.model.jobs import ALL_QUEUES, DEFAULT_QUEUE, Job
from perdure.model.states import LEASED, Status
from perdure.model.timing import span
from perdure.model.workers import WorkerInfo
from perdure.operations.database import DatabaseStatus, SchemaFit, database_status
from perdure.operations.registry import Role, operation

if TYPE_CHECKING:
    from perdure import Client

OLDEST_SERVERS = {"postgresql": (14,), "sqlite": (3, 40)}
MOST_SKEW = 2.0
"""Seconds by which the clocks of this machine and of the database may differ."""
STUCK_AFTER = 60.0
"""Seconds after which a due job should have been started, and an expired lease taken over."""
MOST_JOBS_LOOKED_AT = 5000
START = "perdure worker start --app module:attr"

_END_HOLDER = (
    "end that process, or continue it if it is stopped; the others wait for it for seconds, once, then write without it"
)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. hint: what to do about it; command: the command line that does it."""

    name: str
    status: Literal["ok", "warning", "wrong"]
    detail: str
    hint: str | None = None
    command: str | None = None


@operation("database.diagnose", role=Role.VIEWER)
async def diagnose(client: Client) -> AsyncGenerator[Check, None]:
    """Check the database, its schema, the clock, the workers, and look for jobs that are stuck. What cannot be reached or used
    is a check that is wrong, not an error."""
    try:
        began = time.monotonic()
        status = await database_status(client, with_sizes=False)
        yield Check("database", "ok", f"it answers (connected in {span(time.monotonic() - began)})")
        server = _server(status.server)
        yield server
        schema = _schema(status)
        yield schema
        if schema.status == "wrong":
            return
        yield await _clock(client)
        if server.status == "wrong":
            return
        if (holder := await client.database.blocked_by()) is not None:
            yield Check("lock", "wrong", f"the lock file of the database is held by {holder}", _END_HOLDER)
        for check in await _work(client):
            yield check
    except PerdureError as error:
        yield Check("database", "wrong", error.message, error.hint)


def _server(server: str) -> Check:
    found = re.search(r"(\d+)(?:\.(\d+))?", server)
    name = server.split(maxsplit=1)[0].lower() if server else ""
    oldest = OLDEST_SERVERS.get(name)
    if found is None or oldest is None:
        return Check("server", "ok", server)
    if (int(found[1]), int(found[2] or 0)) < oldest:
        return Check("server", "wrong", f"{server} is too old", f"it must be {'.'.join(map(str, oldest))} or newer")
    return Check("server", "ok", server)


def _schema(status: DatabaseStatus) -> Check:
    if status.verdict is SchemaFit.OK:
        return Check("schema", "ok", f"version {status.schema}")
    detail = f"{status.verdict}: it has version {status.schema}, this perdure needs {status.needed}"
    if status.verdict is SchemaFit.TOO_NEW:
        return Check("schema", "wrong", detail, "upgrade perdure")
    return Check("schema", "wrong", detail, command="perdure db migrate")


async def _clock(client: Client) -> Check:
    before = datetime.now(UTC)
    theirs = await client.database.now()
    after = datetime.now(UTC)
    skew = (theirs - (before + (after - before) / 2)).total_seconds()
    if abs(skew) <= max(MOST_SKEW, (after - before).total_seconds()):
        return Check("clock", "ok", f"this machine and the database agree within {span(abs(skew))}")
    detail = f"this machine is {span(abs(skew))} {'behind' if skew > 0 else 'ahead of'} the database"
    hint = "jobs go by database time, so they are right; times shown here are off. Set the clock (NTP)"
    return Check("clock", "warning", detail, hint)


async def _work(client: Client) -> list[Check]:
    workers = await client.workers.list()
    alive = [w for w in workers if w.alive]
    lost = len(workers) - len(alive)
    queues = sorted({q for w in alive for q in w.queues})
    if ALL_QUEUES in queues:
        queues = ["all queues"]
    detail = f"{len(alive)} alive" + (f" on {', '.join(queues)}" if queues else "") + (f", {lost} lost" if lost else "")
    checks = [Check("workers", "ok", detail) if alive else Check("workers", "warning", "none is alive", command=START)]
    unknown = _unknown(await client.database.live_jobs(), alive)
    checks += unknown[:10]
    orphans = await _orphans(client)
    if orphans:
        detail = f"jobs that are held by workers that are gone, and that no worker takes over: {orphans}"
        checks.append(Check("leases", "wrong", detail, "any worker does it", START))
    if not unknown and not orphans:
        checks.append(Check("jobs", "ok", "none is stuck"))
    return checks


def _unknown(jobs: Iterable[LiveJobs], alive: Sequence[WorkerInfo]) -> list[Check]:
    """Jobs that wait and that no living worker would take, by queue and kind, most first. While no worker runs at all, only those
    that are due for more than a minute."""
    waiting: Counter[tuple[str, str]] = Counter()
    overdue: set[tuple[str, str]] = set()
    for found in jobs:
        place = found.queue, found.kind
        if found.status in LEASED or any(found.kind in w.kinds and w.serves(found.queue) for w in alive):
            continue
        waiting[place] += found.count
        if found.oldest_ready is not None and found.oldest_ready > STUCK_AFTER:
            overdue.add(place)
    checks = []
    for (queue, kind), number in waiting.most_common():
        late = (queue, kind) in overdue
        if not late and not alive:
            continue
        serving = any(w.serves(queue) for w in alive)
        why = f"no worker on queue '{queue}' has handler '{kind}'" if serving else f"no worker serves queue '{queue}'"
        since = "some are due for more than a minute" if late else "none is due for more than a minute yet"
        start = START if queue == DEFAULT_QUEUE else f"{START} --queues {shlex.quote(queue)}"
        detail = f"{why}; jobs of kind '{kind}' that wait: {number}, {since}"
        checks.append(Check("stuck", "wrong" if late else "warning", detail, command=start))
    return sorted(checks, key=lambda check: check.status != "wrong")


async def _orphans(client: Client) -> int:
    """Jobs whose lease ran out more than a minute ago."""
    limit = datetime.now(UTC) - timedelta(seconds=STUCK_AFTER)
    held = [job for status in LEASED for job in await _jobs(client, status)]
    return sum(job.lease is not None and job.lease.expires_at < limit for job in held)


async def _jobs(client: Client, status: Status) -> list[Job]:
    jobs: list[Job] = []
    cursor: str | None = None
    while len(jobs) < MOST_JOBS_LOOKED_AT:
        page = await client.jobs.list(status=status, limit=500, cursor=cursor)
        jobs += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    return jobs
