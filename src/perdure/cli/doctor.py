"""`perdure doctor`: find out what is wrong."""

from __future__ import annotations

import platform
import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from rich.text import Text

from perdure import __version__
from perdure.cli.context import Cli
from perdure.cli.errors import Exit
from perdure.cli.format import clean_text, span
from perdure.cli.options import command, group
from perdure.config import BY_NAME, shown
from perdure.model.errors import PerdureError
from perdure.model.states import LEASED, Status

if TYPE_CHECKING:
    from perdure.model.jobs import Job
    from perdure.model.workers import WorkerInfo
    from perdure.runtime.client.client import Client
    from perdure.runtime.client.database import Database
    from perdure.store.protocol import SchemaStatus

app = group("Find out what is wrong, if anything.", "perdure doctor")

ICONS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "wrong": ("✕", "red")}
OLDEST_SERVERS = {"postgresql": (14,), "sqlite": (3, 40)}
MOST_SKEW = 2.0
STUCK_AFTER = 60.0
MOST_JOBS_LOOKED_AT = 5000


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. status: ok, warning or wrong."""

    name: str
    status: str
    detail: str
    hint: str | None = None


@command(app, "doctor", example="perdure doctor\nperdure doctor -o json | jq '.checks[] | select(.status != \"ok\")'")
async def doctor(cli: Cli) -> int:
    """Check the installation, the database, the clock, the workers and jobs that are stuck. Exit code 1 if something is wrong."""
    checks = [
        Check("perdure", "ok", __version__),
        Check("python", "ok", f"{platform.python_version()} on {platform.platform(terse=True)}"),
    ]
    checks += [check async for check in _examined(cli)]
    wrong = sum(c.status == "wrong" for c in checks)
    facts = {"ok": not wrong, "checks": checks}
    cli.out.one(facts, lambda: _page(checks, wrong), id="ok" if not wrong else "wrong", plain=dict)
    return Exit.FAILURE if wrong else Exit.OK


async def _examined(cli: Cli) -> Any:
    try:
        url = shown(BY_NAME["database_url"], cli.settings["database_url"])
        if own := cli.own_app:
            names = ", ".join(sorted(h.name for h in own.registry))
            hint = "a handler is a function under @app.job"
            yield (
                Check("app", "ok", f"{cli.settings['app']}: {names}")
                if names
                else Check("app", "wrong", f"{cli.settings['app']} has no handlers", hint)
            )
    except PerdureError as error:
        yield Check("settings", "wrong", error.message, error.hint)
        return
    if missing := cli.missing_file():
        yield Check(
            "database", "warning", f"there is no file {missing} yet", "perdure dev, worker start or jobs start make it"
        )
        return
    try:
        began = time.monotonic()
        async with cli.database() as database:
            status = await database.schema_status()
            yield Check("database", "ok", f"{url} answers (connected in {span(time.monotonic() - began)})")
            fits = True
            for check in await _server(database, status):
                fits = fits and check.status != "wrong"
                yield check
            if not fits:
                return
        async with cli.client() as client:
            for check in await _work(client, cli):
                yield check
    except PerdureError as error:
        yield Check("database", "wrong", error.message, error.hint)


async def _server(database: Database, status: SchemaStatus) -> list[Check]:
    from perdure.cli.db import verdict

    checks = [_server_version(status.server)]
    word = verdict(status)
    if word == "ok":
        checks.append(Check("schema", "ok", f"version {status.current}"))
    else:
        hint = "upgrade perdure" if word == "too new" else "perdure db migrate"
        detail = f"{word}: it has version {status.current}, this perdure needs {status.needed}"
        return [*checks, Check("schema", "wrong", detail, hint)]
    before = datetime.now(UTC)
    theirs = await database.now()
    after = datetime.now(UTC)
    skew = (theirs - (before + (after - before) / 2)).total_seconds()
    if abs(skew) <= max(MOST_SKEW, (after - before).total_seconds()):
        return [*checks, Check("clock", "ok", f"this machine and the database agree within {span(abs(skew))}")]
    detail = f"this machine is {span(abs(skew))} {'behind' if skew > 0 else 'ahead of'} the database"
    hint = "jobs are right all the same: they go by database time; times shown here are off. Set the clock (NTP)"
    return [*checks, Check("clock", "warning", detail, hint)]


def _server_version(server: str) -> Check:
    found = re.search(r"(\d+)(?:\.(\d+))?", server)
    name = server.split(maxsplit=1)[0].lower() if server else ""
    oldest = OLDEST_SERVERS.get(name)
    if found is None or oldest is None:
        return Check("server", "ok", server)
    version = (int(found[1]), int(found[2] or 0))
    if version < oldest:
        return Check("server", "wrong", f"{server} is too old", f"it must be {'.'.join(map(str, oldest))} or newer")
    return Check("server", "ok", server)


async def _work(client: Client, cli: Cli) -> list[Check]:
    workers = await client.workers.list()
    alive = [w for w in workers if w.alive]
    lost = len(workers) - len(alive)
    queues = sorted({q for w in alive for q in w.queues})
    detail = f"{len(alive)} alive" + (f" on {', '.join(queues)}" if queues else "") + (f", {lost} lost" if lost else "")
    start = cli.next("worker start --app module:attr")
    checks = [Check("workers", "ok", detail) if alive else Check("workers", "warning", "none is alive", start)]
    stuck = await _stuck(client, alive)
    for (queue, kind), number in stuck.most_common(10):
        serving = [w for w in alive if queue in w.queues]
        why = (
            f"no worker serves queue '{queue}'" if not serving else f"no worker on queue '{queue}' has handler '{kind}'"
        )
        fix = f"{start} --queues {queue}" if queue != "default" else start
        checks.append(Check("stuck", "wrong", f"{why}: {number} due jobs of kind '{kind}' wait", fix))
    orphans = await _orphans(client)
    if orphans:
        detail = f"{orphans} jobs are held by workers that are gone, and nobody takes them over"
        checks.append(Check("leases", "wrong", detail, f"any worker does it: {start}"))
    if not stuck and not orphans:
        checks.append(Check("jobs", "ok", "none is stuck"))
    return checks


async def _stuck(client: Client, alive: Iterable[WorkerInfo]) -> Counter[tuple[str, str]]:
    """Jobs due for more than a minute that no living worker would take, by queue and kind."""
    served = {(q, k) for w in alive for q in w.queues for k in w.kinds}
    limit = datetime.now(UTC) - timedelta(seconds=STUCK_AFTER)
    found: Counter[tuple[str, str]] = Counter()
    for status in (Status.PENDING, Status.RETRY, Status.PARKED, Status.WAITING_FOR_APPROVAL):
        for job in await _jobs(client, status):
            if job.due_at is not None and job.due_at < limit and (job.queue, job.kind) not in served:
                found[job.queue, job.kind] += 1
    return found


async def _orphans(client: Client) -> int:
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


def _page(checks: list[Check], wrong: int) -> Text:
    text = Text()
    for check in checks:
        icon, style = ICONS[check.status]
        text.append(f"{icon} ", style)
        text.append(f"{check.name:<10}", "bold" if check.status != "ok" else None)
        text.append(clean_text(check.detail) + "\n")
        if check.hint and check.status != "ok":
            text.append(f"            {clean_text(check.hint)}\n", "dim")
    text.append("\n")
    text.append(
        "everything is well" if not wrong else f"{wrong} thing{'s' * (wrong > 1)} wrong", "red" if wrong else "green"
    )
    return text
