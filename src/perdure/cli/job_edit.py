"""Commands that change what is stored of jobs: edit, delete."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any
from uuid import UUID

import typer

from perdure.cli import inputs
from perdure.cli.context import Cli
from perdure.cli.errors import Exit
from perdure.cli.format import moment, one_line, short
from perdure.cli.job_bulk import DryRun, SomeIds, chosen, do_to_all
from perdure.cli.job_options import Filters, Reason, app
from perdure.cli.options import command
from perdure.cli.usage_error import Usage
from perdure.model.jobs import Job
from perdure.operations.bulk import delete_jobs, edit_jobs
from perdure.operations.control import delete_job, edit_job
from perdure.operations.registry import UNSET


@command(
    app,
    "edit",
    example="""\
perdure jobs edit 43149ff1 --run-at 'tomorrow 09:00' --reason 'the customer asked'
perdure jobs edit 43149ff1 --payload '{"topic": "tea"}'
perdure jobs edit --queue mail --status PENDING --priority 9 --dry-run""",
)
async def edit(
    cli: Cli,
    which: Filters,
    ids: SomeIds = None,
    priority: Annotated[int | None, typer.Option("--priority", metavar="1-9", help="9 is the most urgent")] = None,
    run_at: Annotated[
        str | None, typer.Option("--run-at", metavar="TIME", help="Start then: 2026-12-24T18:00Z, tomorrow 09:00")
    ] = None,
    delay: Annotated[
        str | None, typer.Option("--delay", metavar="DURATION", help="Start so long from now: 90s, 15m; 0s: now")
    ] = None,
    payload: Annotated[
        str | None,
        typer.Option("--payload", metavar="JSON", help="Another input, before its first start: JSON, @file, or -"),
    ] = None,
    reason: Reason = None,
    dry_run: DryRun = False,
) -> int:
    """Give jobs that no worker holds another priority, time or input; what is not given stays. Their logs say what changed.

    The time may change before the first start and in RETRY, the input before the first start. With filters: all jobs that match.
    """
    if priority is None and run_at is None and delay is None and payload is None:
        raise Usage("nothing to change is given", hint="give --priority, --run-at, --delay or --payload")
    wanted = which.selection()
    typed = chosen(ids, wanted, dry_run)
    given: dict[str, Any] = {"priority": priority, "delay": delay, "reason": reason}
    given["run_at"] = None if run_at is None else moment(run_at, "--run-at", past=False)
    if typed is None:
        if payload is not None:
            raise Usage("--payload is for jobs that are named by their ids")
        async with cli.client() as client:
            await do_to_all(cli, "Edit", "edited", partial(edit_jobs, client, wanted, **given), dry_run=dry_run)
        return Exit.OK
    value = UNSET if payload is None else inputs.read_json(payload, "--payload")
    cli.loads_app = cli.loads_app or value is not UNSET  # a new input is checked
    async with cli.client() as client:

        async def edit_one(id: str) -> Job:
            job = await edit_job(client, id, input=value, **given)
            if cli.out.for_people:
                due = cli.out.times.show(job.due_at) or "when it is woken"
                print(f"{short(job.id)}  {one_line(job.kind)}  priority {job.priority}, due {due}", flush=True)
            return job

        done, code = await cli.each(typed, edit_one)
    if not cli.out.for_people:
        cli.out.rows(done, [], id=lambda j: j.id)
    return code


@command(
    app,
    "delete",
    example="perdure jobs delete 43149ff1\nperdure jobs delete --status CANCELLED --kind research --dry-run",
)
async def delete(
    cli: Cli,
    which: Filters,
    ids: SomeIds = None,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; for the log line")] = None,
    dry_run: DryRun = False,
) -> int:
    """Delete jobs that have ended, with their logs and files, permanently.

    Those that are named, or all that match the filters.
    """
    wanted = which.selection()
    typed = chosen(ids, wanted, dry_run)
    if typed is None:
        async with cli.client() as client:
            await do_to_all(
                cli, "Delete", "deleted", partial(delete_jobs, client, wanted, reason=reason), dry_run=dry_run
            )
        return Exit.OK
    cli.confirm(f"Delete {len(typed)} {'job' if len(typed) == 1 else 'jobs'}, permanently?")
    async with cli.client() as client:

        async def delete_one(id: str) -> UUID:
            deleted = await delete_job(client, id, reason=reason)
            if cli.out.for_people:
                print(f"{short(deleted)} is deleted", flush=True)
            return deleted

        done, code = await cli.each(typed, delete_one)
    if not cli.out.for_people:
        cli.out.rows(done, [], id=str, plain=lambda deleted: {"id": deleted})
    return code
