"""Commands that control jobs: cancel, retry-now, rerun, fork, signal."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from perdure.cli import inputs
from perdure.cli.context import Cli
from perdure.cli.errors import Exit
from perdure.cli.format import bare, one_line, short
from perdure.cli.job_bulk import DryRun, SomeIds, chosen, do_to_all
from perdure.cli.job_options import Filters, Id, Reason, app
from perdure.cli.job_start import follow_to_end, show_started
from perdure.cli.options import command
from perdure.cli.output import Column, Mode, laid_out, status_cell
from perdure.model.jobs import Job
from perdure.operations.bulk import cancel_jobs, rerun_jobs, retry_jobs
from perdure.operations.control import JobStatus, cancel_job, fork_job, rerun_job, retry_job_now
from perdure.operations.registry import UNSET
from perdure.operations.signals import signal_job


@command(
    app,
    "cancel",
    example="""\
perdure jobs cancel 43149ff1 --reason 'no longer needed'
perdure jobs cancel --status PENDING --kind research --dry-run
perdure jobs cancel --queue mail --since 1h --yes""",
)
async def cancel(
    cli: Cli,
    which: Filters,
    ids: SomeIds = None,
    reason: Reason = None,
    force: Annotated[
        bool, typer.Option("--force", help="Do not wait for the worker: take its lease away at once")
    ] = False,
    dry_run: DryRun = False,
) -> int:
    """Cancel jobs: those that are named, in any state, or all that match the filters and have not ended.

    A running one is stopped by its worker, usually within a second.
    """
    wanted = which.selection()
    typed = chosen(ids, wanted, dry_run)
    if typed is None:
        async with cli.client() as client:
            await do_to_all(
                cli,
                "Cancel",
                "cancelled",
                partial(cancel_jobs, client, wanted, reason=reason, force=force),
                dry_run=dry_run,
            )
        return Exit.OK
    if len(typed) > 1:
        cli.confirm(f"Cancel {len(typed)} jobs?")
    async with cli.client() as client:
        done, code = await cli.each(typed, lambda job: cancel_job(client, job, reason=reason, force=force))
    _print_statuses(cli, done)
    if cli.out.for_people and any(not job.status.terminal for job in done):
        cli.out.note("its worker was asked to stop it; after its grace (10 s) its lease is taken away")
    return code


@command(
    app, "retry-now", example="perdure jobs retry-now 43149ff1\nperdure jobs retry-now --kind research --since 1h --yes"
)
async def retry_now(
    cli: Cli,
    which: Filters,
    ids: SomeIds = None,
    reason: Reason = None,
    dry_run: DryRun = False,
) -> int:
    """Make jobs due now that wait for their next attempt or for a delayed start.

    With filters: all that match and wait for their next attempt, unless --status names others.
    """
    wanted = which.selection()
    typed = chosen(ids, wanted, dry_run)
    if typed is None:
        async with cli.client() as client:
            await do_to_all(
                cli, "Retry", "made due", partial(retry_jobs, client, wanted, reason=reason), dry_run=dry_run
            )
        return Exit.OK
    async with cli.client() as client:
        done, code = await cli.each(typed, lambda job: retry_job_now(client, job, reason=reason))
    _print_statuses(cli, done)
    return code


@command(
    app,
    "rerun",
    example="perdure jobs rerun 43149ff1\nperdure jobs rerun --status failed,deadletter --since yesterday --dry-run",
)
async def rerun(
    cli: Cli,
    which: Filters,
    ids: SomeIds = None,
    reason: Reason = None,
    dry_run: DryRun = False,
) -> int:
    """Start new jobs with the same input and print their ids. The old ones stay as they are.

    With filters: all that match, have ended and were not run again yet; those that failed, unless --status names others.
    """
    wanted = which.selection()
    typed = chosen(ids, wanted, dry_run)
    if typed is None:
        async with cli.client() as client:
            await do_to_all(cli, "Rerun", "rerun", partial(rerun_jobs, client, wanted, reason=reason), dry_run=dry_run)
        return Exit.OK
    async with cli.client() as client:

        async def rerun_one(id: str) -> Job:
            job = await rerun_job(client, id, reason=reason)
            if cli.out.for_people:
                print(job.id, flush=True)
            return job

        done, code = await cli.each(typed, rerun_one)
    if not cli.out.for_people:
        cli.out.rows(done, [], id=lambda j: j.id)
    else:
        for job in done:
            cli.out.note(
                f"{short(job.id)} reruns {short(job.origin_id)}; watch it: {cli.next(f'jobs watch {bare(job.id)}')}"
            )
    return code


@command(
    app,
    "fork",
    example="""\
perdure jobs fork 43149ff1
perdure jobs fork 43149ff1 --from-step write --set 'input.tone:="short"' --follow
perdure jobs fork 43149ff1 --from-step 3 --input @brief.json -o id""",
)
async def fork(
    cli: Cli,
    id: Id,
    from_step: Annotated[
        str | None,
        typer.Option(
            "--from-step",
            metavar="STEP",
            help="Run again from this step on (name or number); without it no recorded step runs again",
        ),
    ] = None,
    input: Annotated[
        str | None, typer.Option("--input", metavar="JSON", help="Another input: JSON, @file, or - for stdin")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change a part of the input: input.a=text, input.a.0:=json"),
    ] = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Wait until it is finished, and print every event (on stderr)")
    ] = False,
    reason: Reason = None,
) -> None:
    """Start a new job that keeps the recorded steps of an old one before a step, and runs from there on.

    The old job stays as it is. The new one has the same input unless you change it; a kept step that is then called with other
    arguments fails the job. Steps and their numbers: `jobs steps ID -o wide`.
    """
    given = UNSET if input is None else inputs.read_json(input, "--input")
    parts = inputs.input_changes(changes or [])
    cli.loads_app = cli.loads_app or given is not UNSET or bool(parts)  # a new input is checked
    async with cli.client() as client:
        new = await fork_job(client, id, from_step, input=given, changes=parts, reason=reason)
        if cli.out.for_people or cli.out.mode is Mode.ID:
            print(new.id, flush=True)
        if cli.out.for_people:
            point = f" from '{one_line(str(from_step))}' on" if from_step else ""
            many = f"{new.kept} step{'' if new.kept == 1 else 's'}"
            cli.out.note(f"{short(new.id)} is {short(new.origin_id)} again{point}; it keeps {many}")
        if follow:
            await follow_to_end(cli, client, new.id, None, steps=True)
        else:
            await show_started(cli, client, new.id)


@command(
    app,
    "signal",
    example="""\
perdure jobs signal 43149ff1 paid '{"amount": 30}' --id transfer-4711
perdure jobs signal 43149ff1 input @brief.json""",
)
async def signal(
    cli: Cli,
    id: Id,
    key: Annotated[str, typer.Argument(metavar="KEY", help="What the job waits for; jobs explain names it")],
    payload: Annotated[
        str | None, typer.Argument(metavar="PAYLOAD", help="JSON, @file, or - for stdin; without it null")
    ] = None,
    signal_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Sent again with the same id, it is the same signal")
    ] = None,
) -> None:
    """Send a signal to a job. The job takes it when it waits for this key; one that comes early is kept."""
    from rich.text import Text

    value = None if payload is None else inputs.read_json(payload, "PAYLOAD")
    async with cli.client() as client:
        sent = await signal_job(client, id, key, value, id=signal_id)
    taken = "the job waited for it, and is due" if sent.wait_key else "it is kept until the job waits for it"
    cli.out.one(sent, lambda: Text(f"signal '{one_line(sent.key)}' sent: {taken}"), id=sent.id)


def _print_statuses(cli: Cli, done: list[JobStatus]) -> None:
    columns: list[Column[JobStatus]] = [
        Column("status", lambda d: status_cell(d.status)),
        Column("job", lambda d: short(d.id), least=9),
    ]
    out = cli.out
    if out.for_people:
        if done:
            table = laid_out([[c.cell(r) for c in columns] for r in done], columns, out.width)
            out.print(table.split("\n")[1] if len(done) == 1 else table)
        return
    out.rows(done, columns, id=lambda d: d.id)
