"""`perdure jobs export`: jobs as JSON lines."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import typer

from perdure.cli import inputs
from perdure.cli.context import Cli
from perdure.cli.format import safe_json
from perdure.cli.job_options import Filters, app
from perdure.cli.options import command
from perdure.cli.output import Mode
from perdure.cli.usage_error import Usage
from perdure.operations.export import export_jobs, line_of, write_records


@command(
    app,
    "export",
    example="""\
perdure jobs export 43149ff1 --redact > job.jsonl
perdure jobs export --status failed --since 7d --to failed.jsonl.gz
perdure jobs export --all | jq -r 'select(.record == "event") | .type' | sort | uniq -c""",
)
async def export(
    cli: Cli,
    which: Filters,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Jobs; - reads ids from stdin; none: those of the filters")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="FILE", help="Write this file, gzipped if it ends in .gz, instead of stdout"),
    ] = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Replace payloads, results and names of people; the structure stays")
    ] = False,
    all: Annotated[bool, typer.Option("--all", help="Every job")] = False,
) -> None:
    """Print jobs and everything stored about them, as JSON lines.

    For each job: the job, its attempts (`run`), approvals, events and an `end`. Memory does not grow with the number of jobs or
    events. The file is created when the export is complete.
    """
    to = None if to == "-" else to
    wanted = which.selection()
    if (bool(ids) + bool(wanted) + all) != 1:
        raise Usage("which jobs? Give ids, filters or --all: one of the three")
    if to is None and cli.out.mode in (Mode.JSON, Mode.ID):
        raise Usage(
            "an export is JSON lines; -o json and -o id do not apply", hint="leave -o out, or write a file with --to"
        )
    chosen = inputs.ids_given(ids) if ids else []
    if ids and not chosen:
        return
    if to is not None:
        _may_be_written(cli, Path(to))
    async with cli.client() as client:
        records = export_jobs(client, tuple(chosen), which=wanted, redact=redact)
        if to is None:
            await _to_stdout(cli, records)
            return
        try:
            jobs = await write_records(records, Path(to))
        except OSError as error:
            raise Usage(f"--to: cannot write {to}: {error.strerror}") from None
    count = "1 job" if jobs == 1 else f"{jobs} jobs"
    if cli.out.for_people:
        cli.out.note(f"{count} in {to}")
    else:
        cli.out.rows([{"file": to, "jobs": jobs}], [], id=lambda r: r["file"], plain=dict)


async def _to_stdout(cli: Cli, records: AsyncIterator[dict[str, Any]]) -> None:
    async for record in records:
        if cli.out.mode is not Mode.NONE:
            sys.stdout.write(safe_json(line_of(record)) + "\n")


def _may_be_written(cli: Cli, file: Path) -> None:
    if file.is_dir():
        raise Usage(f"--to: {file} is a directory")
    if not file.parent.is_dir():
        raise Usage(f"--to: there is no directory {file.parent}")
    if file.exists():
        cli.confirm(f"Overwrite {file}?")
