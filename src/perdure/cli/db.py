"""`perdure db`: look after the database."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from perdure.cli import inputs
from perdure.cli.errors import Exit
from perdure.cli.options import command, group
from perdure.cli.session import Cli
from perdure.cli.usage import Usage
from perdure.cli.words import duration, span
from perdure.config import BY_NAME, shown
from perdure.model.errors import MalformedUrl
from perdure.model.states import TERMINAL, Status, parse_status
from perdure.store.sqlfiles import load_migrations, load_statements

if TYPE_CHECKING:
    from perdure.store.protocol import Migration, SchemaStatus, Store

app = group("Look after the database.", "perdure db status")

BATCH = 500


def verdict(status: SchemaStatus) -> str:
    """`ok`, `missing`, `outdated` or `too new`."""
    if status.current == 0:
        return "missing"
    if status.current == status.needed:
        return "ok"
    return "outdated" if status.current < status.needed else "too new"


@command(app, "status", example="perdure db status --db postgresql://localhost/jobs")
async def status(cli: Cli) -> int:
    """Show what the database is and whether its schema fits. Exit code 1 if it does not."""
    missing = cli.missing_file()
    if missing is not None:
        cli.out.warn(f"there is no database at {missing} yet; perdure db migrate makes it")
        cli.use("memory:")
    async with cli.store() as store:
        found = await store.schema_status()
    facts: dict[str, Any] = {
        "database": str(missing) if missing else shown(BY_NAME["database_url"], cli.settings["database_url"]),
        "server": found.server,
        "schema": found.current,
        "needed": found.needed,
        "verdict": verdict(found),
        "migrations": [
            {"number": m.number, "name": m.name, "checksum": m.checksum, "applied_at": m.applied_at}
            for m in found.migrations
        ],
    }
    cli.out.one(facts, lambda: _page(cli, facts, found.migrations), id=found.current, plain=dict)
    if facts["verdict"] in ("missing", "outdated"):
        cli.out.note("create or upgrade it: perdure db migrate")
    return Exit.OK if facts["verdict"] == "ok" else Exit.FAILURE


def _page(cli: Cli, facts: dict[str, Any], migrations: tuple[Migration, ...]) -> Text:
    good = facts["verdict"] == "ok"
    text = Text()
    text.append(f"database  {facts['database']}\nserver    {facts['server']}\nschema    ")
    text.append(f"{'✓' if good else '✕'} {facts['verdict']}", "green" if good else "red")
    text.append(f" (has {facts['schema']}, this version needs {facts['needed']})\n")
    for m in migrations:
        when = f"applied {cli.out.times.show(m.applied_at)}" if m.applied_at else "not applied"
        text.append(f"  {m.number:04d} {m.name}  {when}\n")
    return text


@command(
    app,
    "migrate",
    example="""\
perdure db migrate --db postgresql://localhost/jobs
perdure db migrate --dump-sql --db postgresql:// > schema.sql""",
)
async def migrate(
    cli: Cli,
    dump_sql: Annotated[
        bool,
        typer.Option("--dump-sql", help="Print the SQL of every migration instead; needs no database, only its kind"),
    ] = False,
) -> None:
    """Create or upgrade the schema. One migrator at a time; what is applied already is left alone."""
    url = cli.settings["database_url"].strip()
    if dump_sql:
        _dump(cli, url)
        return
    async with cli.store() as store:
        applied = await store.migrate()
        found = await store.schema_status()
    if cli.out.for_people:
        for m in applied:
            print(f"applied {m.number:04d} {m.name}")
        cli.out.note(f"the schema is at version {found.current}" + ("" if applied else ": nothing to do"))
        return
    rows = [{"number": m.number, "name": m.name} for m in applied]
    cli.out.rows(rows, [], id=lambda r: r["number"], plain=dict)


def _dump(cli: Cli, url: str) -> None:
    scheme = url.partition(":")[0]
    dialects = {"postgresql": "postgres", "postgres": "postgres", "sqlite": "sqlite", "memory": "sqlite"}
    if scheme not in dialects:
        raise MalformedUrl(f"'{scheme}' is no kind of database", hint="--db postgresql:// or --db sqlite://")
    package = f"perdure.store.{dialects[scheme]}"
    migrations = load_migrations(package)
    if cli.out.for_programs:
        rows = [{"number": m.number, "name": m.name, "checksum": m.checksum, "sql": m.sql} for m in migrations]
        cli.out.rows(rows, [], id=lambda r: r["number"], plain=dict)
        return
    statements = load_statements(package)
    print("begin;\n")
    if dialects[scheme] == "postgres":
        print("create schema if not exists perdure;\n")
    print(f"{statements['create_migrations']};\n")
    for m in migrations:
        print(f"-- migration {m.number:04d} {m.name} (sha256 {m.checksum})\n{m.sql.rstrip()}\n")
        print(f"{_recorded(m, statements['record_migration'])};\n")
    print("commit;")


def _recorded(migration: Migration, statement: str) -> str:
    """What a migrator would record, so that perdure knows of a migration that was applied by hand."""
    values = iter([str(migration.number), f"'{migration.name}'", f"'{migration.checksum}'", "unixepoch() * 1000000"])
    return re.sub(r"\$\d|\?", lambda _: next(values), statement)


@command(
    app,
    "prune",
    example="""\
perdure db prune --older-than 30d --dry-run
perdure db prune --older-than 90d --status completed,cancelled --yes""",
)
async def prune(
    cli: Cli,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="DURATION", help="Finished longer ago than this: 30d, 12h")
    ],
    status: Annotated[
        list[str] | None,
        typer.Option(
            "--status", metavar="STATUS", help="Only these ends; default: completed, failed, cancelled, deadletter"
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them")] = False,
) -> None:
    """Delete finished jobs with their events, attempts and approvals, for good, in small transactions.

    What is not finished is never touched.
    """
    age = duration(older_than, "--older-than")
    statuses = _ends(status)
    missing = cli.missing_file()
    if missing is not None:
        cli.out.warn(f"there is no database at {missing}: nothing to prune")
        cli.use("memory:")
    async with cli.store() as store:
        await (store.check_schema() if missing is None else store.migrate())
        matching = await store.prune(older_than=age, statuses=statuses, limit=BATCH, dry_run=True)
        deleted = 0
        if matching and not dry_run:
            cli.confirm(f"Delete {_jobs(matching)} that ended more than {span(age)} ago, for good?")
            deleted = await _prune(cli, store, age, statuses, matching)
    facts = {"matching": matching, "deleted": deleted, "dry_run": dry_run}
    said = f"{_jobs(matching)} would be deleted" if dry_run else f"{_jobs(deleted)} deleted"
    cli.out.one(facts, lambda: Text(said), id=deleted, plain=dict)


async def _prune(cli: Cli, store: Store, age: float, statuses: list[Status], matching: int) -> int:
    deleted = 0
    while number := await store.prune(older_than=age, statuses=statuses, limit=BATCH):
        deleted += number
        if matching > BATCH:
            cli.out.note(f"{deleted} of {matching}")
    return deleted


def _ends(given: list[str] | None) -> list[Status]:
    try:
        statuses = [parse_status(name) for name in inputs.names(given)] or [s for s in Status if s in TERMINAL]
    except ValueError as error:
        raise Usage(f"--status: {error}") from None
    if live := [s for s in statuses if s not in TERMINAL]:
        ends = ", ".join(s for s in Status if s in TERMINAL)
        raise Usage(f"--status: {live[0]} is no end of a job, and only finished jobs are pruned", hint=f"ends: {ends}")
    return statuses


def _jobs(number: int) -> str:
    return "1 job" if number == 1 else f"{number} jobs"
