"""`perdure db`: migrate, inspect and prune the database."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from perdure.cli import inputs
from perdure.cli.context import Cli
from perdure.cli.db_views import Progress, jobs, sizes_json, sizes_page
from perdure.cli.errors import Exit
from perdure.cli.format import duration, one_line, span
from perdure.cli.options import command, group
from perdure.cli.usage_error import Usage
from perdure.config import BY_NAME, shown
from perdure.model.retention import ENDS
from perdure.model.states import Status, parse_status
from perdure.operations.database import (
    SchemaFit,
    SchemaMigration,
    backup_database,
    database_status,
    migrate_database,
    prune_jobs,
    schema_script,
)

app = group("Migrate, inspect, copy and prune the database.", "perdure db status")


@command(app, "status", example="perdure db status --db postgresql://localhost/jobs")
async def status(cli: Cli) -> int:
    """Show what the database is, whether its schema fits, and how large its tables are. Exit code 1 if it does not fit.

    Numbers of rows are estimates (~), or counted up to a limit (+). -o wide shows each index.
    """
    missing = cli.missing_file()
    if missing is not None:
        cli.out.warn(f"there is no database at {missing} yet; perdure db migrate creates it")
        cli.use("memory:")
    async with cli.unopened() as client:
        found = await database_status(client)
    facts: dict[str, Any] = {
        "database": str(missing) if missing else shown(BY_NAME["database_url"], cli.settings["database_url"]),
        "server": found.server,
        "schema": found.schema,
        "needed": found.needed,
        "verdict": found.verdict,
        "migrations": found.migrations,
        "sizes": None if found.sizes is None else sizes_json(found.sizes),
    }

    def page() -> Text:
        text = _page(cli, facts, found.migrations)
        return text if found.sizes is None else text.append("\n").append_text(sizes_page(cli.out, found.sizes))

    cli.out.one(facts, page, id=found.schema, plain=dict)
    if found.verdict in (SchemaFit.MISSING, SchemaFit.OUTDATED):
        cli.out.note("create or upgrade it: perdure db migrate")
    return Exit.OK if found.verdict is SchemaFit.OK else Exit.FAILURE


def _page(cli: Cli, facts: dict[str, Any], migrations: tuple[SchemaMigration, ...]) -> Text:
    good = facts["verdict"] is SchemaFit.OK
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
    """Create or upgrade the schema. One migrator at a time; applied migrations are skipped."""
    url = cli.settings["database_url"].strip()
    if dump_sql:
        _dump(cli, url)
        return
    async with cli.unopened() as client:
        done = await migrate_database(client)
    if cli.out.for_people:
        for m in done.applied:
            print(f"applied {m.number:04d} {m.name}")
        cli.out.note(f"the schema is at version {done.schema}" + ("" if done.applied else ": nothing to do"))
        return
    rows = [{"number": m.number, "name": m.name} for m in done.applied]
    cli.out.rows(rows, [], id=lambda r: r["number"], plain=dict)


def _dump(cli: Cli, url: str) -> None:
    script = schema_script(url)
    if cli.out.for_programs:
        keys = ("number", "name", "checksum", "sql")
        rows = [{key: getattr(m, key) for key in keys} for m in script.migrations]
        cli.out.rows(rows, [], id=lambda r: r["number"], plain=dict)
        return
    print(script.sql)


@command(
    app,
    "backup",
    example="perdure db backup perdure-monday.db\nperdure db backup --overwrite /var/backups/perdure.db",
)
async def backup(
    cli: Cli,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The copy: one file, which only you may read")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE if it is there")] = False,
) -> None:
    """Copy a SQLite database, as it is at one moment, while workers run. For PostgreSQL it says how pg_dump does it.

    The copy is complete and synced once it has its name. To check it: `perdure fsck --db sqlite:///FILE`.
    """
    if not file.strip():
        raise Usage("FILE is empty")
    async with cli.unopened() as client:
        size = await backup_database(client, file, overwrite=overwrite)
    facts = {"file": file, "bytes": size}
    cli.out.one(facts, lambda: Text(f"wrote {one_line(file)}, {size:,} bytes"), id=facts["file"], plain=dict)


@command(
    app,
    "prune",
    example="""\
perdure db prune --older-than 30d --dry-run
perdure db prune --older-than 90d --status completed,cancelled --export old-jobs.jsonl.gz --yes
perdure db prune --older-than 30d --keep-logs --kind research""",
)
async def prune(
    cli: Cli,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="DURATION", help="Finished longer ago than this: 30d, 12h")
    ],
    status: Annotated[
        list[str] | None,
        typer.Option(
            "--status",
            metavar="STATUS",
            help="Only with these final statuses; default: completed, failed, cancelled, deadletter",
        ),
    ] = None,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", metavar="KIND", help="Only of this kind (handler)")
    ] = None,
    queue: Annotated[list[str] | None, typer.Option("--queue", metavar="QUEUE", help="Only of this queue")] = None,
    export: Annotated[
        str | None,
        typer.Option(
            "--export", metavar="FILE", help="Append each job to this file first: JSON lines, gzipped if it ends in .gz"
        ),
    ] = None,
    keep_logs: Annotated[
        bool,
        typer.Option("--keep-logs", help="Delete payloads, results and checkpoints only; the jobs and their logs stay"),
    ] = False,
    batch_size: Annotated[
        int,
        typer.Option("--batch-size", metavar="N", help="Most jobs of one transaction; default 500", min=1, max=10_000),
    ] = 500,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them")] = False,
) -> None:
    """Delete finished jobs with their events, attempts and approvals, permanently, in small transactions.

    Unfinished jobs are never touched. If it is interrupted, each job is either complete or pruned; run it again to continue.
    With --export each job is written and synced to the file before it is deleted.
    """
    if export in ("", "-"):
        raise Usage("--export needs a file: stdout cannot be synced to a disk", hint="perdure jobs export prints")
    age = duration(older_than, "--older-than")
    wanted: dict[str, Any] = {
        "older_than": age,
        "status": tuple(_ends(status)),
        "kind": tuple(inputs.names(kind)),
        "queue": tuple(inputs.names(queue)),
        "keep_logs": keep_logs,
    }
    missing = cli.missing_file()
    if missing is not None:
        cli.out.warn(f"there is no database at {missing}: nothing to prune")
        cli.use("memory:")
    progress = Progress(cli.out, keep_logs=keep_logs)
    async with cli.unopened() as client:
        progress.matching = await prune_jobs(client, **wanted, dry_run=True)
        if progress.matching and not dry_run:
            what = "payload, result and checkpoint of " if keep_logs else ""
            cli.confirm(f"Delete {what}{jobs(progress.matching)} that ended more than {span(age)} ago, permanently?")
            await progress.wait(
                prune_jobs(client, **wanted, export=export, batch=batch_size, on_batch=progress.reached)
            )
    facts = {"matching": progress.matching, "deleted": progress.done, "dry_run": dry_run, "keep_logs": keep_logs}
    said = progress.would() if dry_run else progress.summary(export)
    if not progress.matching:
        said = f"nothing to prune: no job that matches ended more than {span(age)} ago"
    cli.out.one(facts, lambda: Text(said), id=progress.done, plain=dict)


def _ends(given: list[str] | None) -> list[Status]:
    try:
        statuses = [parse_status(name) for name in inputs.names(given)]
    except ValueError as error:
        raise Usage(f"--status: {error}") from None
    if live := [s for s in statuses if not s.terminal]:
        raise Usage(
            f"--status: {live[0]} is not a final status, and only finished jobs are pruned",
            hint=f"final: {', '.join(ENDS)}",
        )
    return statuses
