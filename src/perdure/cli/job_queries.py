"""Commands that read jobs: ls, get, watch, events, steps, count, explain, diff."""

from __future__ import annotations

import enum
from dataclasses import replace
from typing import Annotated, Any, Literal
from uuid import UUID

import typer

from perdure.cli import event_table as eventtable
from perdure.cli import inputs
from perdure.cli import job_table as jobtable
from perdure.cli import step_table as steps
from perdure.cli.context import Cli
from perdure.cli.errors import Exit
from perdure.cli.flags import Paging
from perdure.cli.format import duration
from perdure.cli.job_options import Filters, Id, Ids, app
from perdure.cli.options import command
from perdure.cli.output import Column, Mode, status_cell
from perdure.cli.usage_error import Usage
from perdure.model.approvals import Approval
from perdure.operations import jobs
from perdure.operations.follow import follow_job


class By(enum.StrEnum):
    """How `jobs count` groups."""

    STATUS = "status"
    KIND = "kind"
    QUEUE = "queue"


@command(
    app,
    "ls",
    example="""\
perdure jobs ls --status failed,deadletter --since 24h
perdure jobs ls --kind research --search timeout -o wide
perdure jobs ls --all -o jsonl --fields id,status,result""",
)
async def ls(
    cli: Cli,
    page: Paging,
    which: Filters,
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="With this idempotency key")] = None,
    agent: Annotated[str | None, typer.Option("--agent", metavar="AGENT", help="Of this agent")] = None,
    session: Annotated[str | None, typer.Option("--session", metavar="NAME", help="Of this session of agents")] = None,
) -> None:
    """List jobs, newest first."""
    wanted = which.selection()
    asked: dict[UUID, Approval] = {}
    async with cli.client() as client:

        async def fetch(limit: int, cursor: str | None) -> jobs.JobPage:
            found = await jobs.list_jobs(
                client,
                wanted,
                idempotency_key=key,
                agent=agent,
                session=session,
                limit=limit,
                cursor=cursor,
                with_approvals=cli.out.for_people,
            )
            asked.update({a.job_id: a for a in found.asks})
            return found

        await cli.list(
            page,
            fetch,
            jobtable.columns(cli.out.times, asked),
            id=lambda j: j.id,
            nothing="no job matches"
            if wanted or agent or session
            else f"no jobs yet; start one: {cli.next('jobs start KIND')}",
        )


@command(app, "get", example="perdure jobs get 43149ff1\nperdure jobs get 43149ff1 --show steps,result")
async def get(
    cli: Cli,
    ids: Ids,
    show: Annotated[
        list[str] | None,
        typer.Option(
            "--show",
            metavar="PARTS",
            help="Only these, in full: payload, result, error, waits, signals, checkpoint, steps, runs, events, all",
        ),
    ] = None,
    at: Annotated[
        int | None, typer.Option("--at", metavar="VERSION", help="As it was at this version of its log")
    ] = None,
) -> int:
    """Show everything about a job: its facts, what it waits for, what it did, where it failed.

    With --at it is read from its log, which does not have progress, the lease and the due time.
    """
    from perdure.cli.job_page import PARTS, JobPage, as_json, next_commands

    parts = ["payload" if p == "input" else p for p in inputs.names(show)]
    if unknown := set(parts) - {*PARTS, "all"}:
        raise Usage(f"--show: there is no part '{min(unknown)}'", hint=f"known: {', '.join([*PARTS, 'all'])}")
    if "all" in parts:
        parts = list(PARTS)
    chosen = inputs.ids_given(ids)
    together = cli.out.mode is Mode.JSON
    async with cli.client() as client:

        async def show_one(id: str) -> jobs.JobRecord:
            record = await jobs.get_job(
                client, id, at=at, include=("events", "runs", "approvals", "signals", "budgets")
            )
            job, out = record.job, cli.out
            if together:
                return record

            def page() -> Any:
                laid = JobPage(record, out.times, out.width)
                return laid.only(parts) if parts else laid.whole()

            out.one(record, page, id=job.id, plain=lambda r: as_json(r, parts))
            if out.for_people and not parts and not out.fields and at is None:
                out.note("next:  " + "\n       ".join(map(cli.next, next_commands(job, record.approvals))))
            return record

        records, code = await cli.each(chosen, show_one)
    if together:
        cli.out.rows(records, [], id=lambda r: r.job.id, plain=lambda r: as_json(r, parts))
    return code


@command(app, "watch", example="perdure jobs watch 43149ff1 --timeout 30m\nperdure jobs watch --kind research")
async def watch(
    cli: Cli,
    which: Filters,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Jobs; none: those of the filters")] = None,
    timeout: Annotated[str | None, typer.Option("--timeout", metavar="DURATION", help="Give up after this")] = None,
) -> int:
    """Watch jobs until they are finished: a live table, or without a terminal a line per change of status.

    Without ids it watches the jobs that match the filters and are not finished. The exit code is that of the worst outcome.
    """
    from perdure.cli.watch import Watch

    wanted = which.selection()
    if ids and wanted:
        raise Usage("give ids or filters, not both")
    limit = None if timeout is None else duration(timeout, "--timeout")
    chosen = inputs.ids_given(ids) if ids else []
    if ids and not chosen:
        cli.out.rows([], [], id=str)
        cli.out.note("nothing to watch: no unfinished job matches")
        return Exit.OK
    async with cli.client() as client:
        return await Watch(client, cli.out, timeout=limit).run(chosen, wanted)


@command(
    app, "events", example="perdure jobs events 43149ff1 -f\nperdure jobs events 43149ff1 --type tool_called -o jsonl"
)
async def events(
    cli: Cli,
    id: Id,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Continue with new events until the job is finished")
    ] = False,
    from_version: Annotated[int, typer.Option("--from", metavar="N", help="From this version on", min=1)] = 1,
    types: Annotated[list[str] | None, typer.Option("--type", metavar="TYPE", help="Only events of this type")] = None,
) -> None:
    """Print a job's log: every event, in order."""
    wanted = tuple(inputs.names(types))
    out = cli.out
    async with cli.client() as client:
        columns = eventtable.columns(out.times)
        if not follow:
            shown = await jobs.list_events(client, id, after=from_version - 1, types=wanted)
            out.rows(shown, columns, id=lambda e: e.event_id or e.version, plain=eventtable.as_json)
            if not shown and out.for_people:
                out.note("no such event")
            return
        if out.mode is Mode.JSON:
            raise Usage("-o json prints one document; --follow prints lines", hint="use -o jsonl")
        async for event in follow_job(client, id, after=from_version - 1, types=wanted):
            if out.mode is Mode.JSONL:
                out.json_line(eventtable.as_json(event))
            elif out.for_people:
                print(eventtable.line(event, out.times), flush=True)
            elif out.mode is Mode.ID:
                print(event.event_id or event.version, flush=True)


@command(app, "steps", example="perdure jobs steps 43149ff1")
async def steps_(cli: Cli, id: Id) -> None:
    """Show a job's steps: those recorded, which never run again, and those that run or wait."""
    async with cli.client() as client:
        found = await jobs.list_steps(client, id)
    cli.out.rows(found, steps.columns(cli.out.times), id=lambda s: s.key)
    if not found and cli.out.for_people:
        cli.out.note("no steps yet")


@command(app, "count", example="perdure jobs count --by kind --status failed,deadletter")
async def count(
    cli: Cli,
    which: Filters,
    by: Annotated[By, typer.Option("--by", metavar="status|kind|queue", help="How to group")] = By.STATUS,
) -> None:
    """Count jobs by status, kind or queue."""
    wanted = which.selection()
    group_by: Literal["status", "kind", "queue"] = by.value
    async with cli.client() as client:
        found = await jobs.count_jobs(client, wanted, by=group_by)
    out = cli.out
    if out.mode is Mode.JSON:
        out.json(found)
        return
    rows = [{by.value: name, "jobs": number} for name, number in found.items()]
    columns: list[Column[dict[str, Any]]] = [
        Column(by.value, lambda r: status_cell(r[by.value]) if by is By.STATUS else str(r[by.value])),
        Column("jobs", lambda r: str(r["jobs"]), right=True),
    ]
    out.rows(rows, columns, id=lambda r: r[by.value], plain=dict)
    if not rows and out.for_people:
        out.note("no job matches")


@command(app, "explain", example="perdure jobs explain 43149ff1\nperdure jobs explain 43149ff1 --fields code")
async def explain(cli: Cli, id: Id) -> None:
    """Explain why a job does not run or continue, and what to do about it."""
    from perdure.cli.explain_page import explain_page

    async with cli.client() as client:
        found = await jobs.explain_job(client, id)
    moves = tuple(replace(m, command=cli.next(m.command.removeprefix("perdure "))) for m in found.moves)
    explanation = replace(found, moves=moves)
    cli.out.one(explanation, lambda: explain_page(explanation, cli.out.times), id=explanation.job_id)


@command(
    app,
    "diff",
    example="perdure jobs diff 43149ff1 0c0ffee1\nperdure jobs diff 43149ff1 0c0ffee1 --what steps,result -o json",
)
async def diff(
    cli: Cli,
    a: Annotated[str, typer.Argument(metavar="ID_A", help="A job")],
    b: Annotated[str, typer.Argument(metavar="ID_B", help="Another: usually a rerun or a fork of it")],
    what: Annotated[
        list[str] | None, typer.Option("--what", metavar="PARTS", help="Only these: input, steps, result, outcome")
    ] = None,
) -> None:
    """Show what differs between two jobs: - only in the first, + only in the second, ~ in both, but different."""
    from perdure.cli.diff_page import PARTS, DiffPage, as_json

    parts = inputs.names(what) or list(PARTS)
    if unknown := set(parts) - set(PARTS):
        raise Usage(f"--what: there is no part '{min(unknown)}'", hint=f"known: {', '.join(PARTS)}")
    async with cli.client() as client:
        found = await jobs.diff_jobs(client, a, b)
    out = cli.out
    out.one(
        found, lambda: DiffPage(out.times, out.width).of(found, parts), id=found.b.id, plain=lambda d: as_json(d, parts)
    )
