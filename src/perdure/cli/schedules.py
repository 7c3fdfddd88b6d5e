"""`perdure schedules`: jobs that are started by themselves."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from perdure.cli import inputs
from perdure.cli.context import Cli
from perdure.cli.format import Times, bare, clean_text, moment, short
from perdure.cli.options import command, group
from perdure.cli.output import Cell, Column, Mode
from perdure.model.schedules import Schedule
from perdure.operations import schedules as operations

app = group("Start jobs by cron, at an interval, or once.", "perdure schedules ls")

Id = Annotated[str, typer.Argument(metavar="ID", help="A schedule")]


def columns(times: Times) -> list[Column[Schedule]]:
    """The columns of `schedules ls`."""
    return [
        Column("state", state_cell),
        Column("schedule", lambda s: s.id, least=12),
        Column("kind", lambda s: s.kind, least=8),
        Column("times", lambda s: s.rule, flexible=True),
        Column("next", lambda s: times.show(s.next_at) if s.next_at else ""),
        Column("last", lambda s: times.show(s.last_at) if s.last_at else ""),
        Column("last_job", lambda s: short(s.last_job_id) if s.last_job_id else ""),
        Column("overlap", lambda s: s.overlap.value, wide=True),
        Column("queue", lambda s: s.queue, wide=True),
        Column("set_by", lambda s: s.set_by, wide=True, flexible=True),
    ]


def state_cell(schedule: Schedule) -> Cell:
    """Whether it will fire."""
    if schedule.paused:
        return "◔ paused", "yellow"
    return ("● active", "green") if schedule.next_at is not None else ("○ ended", "dim")


@command(
    app,
    "add",
    example="""\
perdure schedules add nightly report --cron '30 3 * * *' --timezone Europe/Berlin
perdure schedules add poll fetch --every 15m --input '{"feed": "news"}'
perdure schedules add once remind --at 'tomorrow 09:00' -P text=call""",
)
async def add(
    cli: Cli,
    id: Annotated[str, typer.Argument(metavar="ID", help="Its name; the same one changes it")],
    kind: Annotated[str, typer.Argument(metavar="KIND", help="The handler's name")],
    params: Annotated[
        list[str] | None,
        typer.Option("-P", "--param", metavar="KEY=VALUE", help="A key of the input: k=text, k:=json, k=@file"),
    ] = None,
    input: Annotated[
        str | None, typer.Option("--input", metavar="JSON", help="The whole input: JSON, @file, or - for stdin")
    ] = None,
    cron: Annotated[
        str | None,
        typer.Option(
            "--cron", metavar="FIELDS", help="minute hour day-of-month month day-of-week, e.g. '0 3 * * MON-FRI'"
        ),
    ] = None,
    every: Annotated[str | None, typer.Option("--every", metavar="DURATION", help="An interval: 15m, 2h")] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="Once: 2026-12-24T18:00Z, tomorrow 09:00, 90m")
    ] = None,
    timezone: Annotated[
        str | None, typer.Option("--timezone", metavar="ZONE", help="Of --cron: Europe/Berlin; default UTC")
    ] = None,
    overlap: Annotated[
        str | None,
        typer.Option(
            "--overlap", metavar="POLICY", help="While its last job has not ended: skip (default), enqueue, cancel-old"
        ),
    ] = None,
    catch_up: Annotated[
        str | None,
        typer.Option("--catch-up", metavar="DURATION", help="Make up for what was missed, if not older; default 1h"),
    ] = None,
    jitter: Annotated[
        str | None, typer.Option("--jitter", metavar="DURATION", help="Start each job up to so much later")
    ] = None,
    queue: Annotated[str | None, typer.Option("--queue", metavar="QUEUE", help="Default: the handler's queue")] = None,
    priority: Annotated[
        int | None, typer.Option("--priority", metavar="1-9", help="9 is the most urgent; default 5")
    ] = None,
    max_retries: Annotated[
        int | None, typer.Option("--max-retries", metavar="N", help="0 to 100; default 3, or the handler's")
    ] = None,
) -> None:
    """Store a schedule, or change the one of this id. Workers fire it.

    With --app the kind and the input are checked against the handler, and its queue, priority and retries apply.
    """
    given: dict[str, Any] = {
        "cron": cron,
        "every": every,
        "at": None if at is None else moment(at, "--at", past=False),
        "timezone": timezone,
        "overlap": overlap,
        "catch_up": catch_up,
        "jitter": jitter,
        "queue": queue,
        "priority": priority,
        "max_retries": max_retries,
    }
    value = inputs.job_input(input, params or [])
    cli.loads_app = True  # to check the kind and the input
    async with cli.client(creates=True) as client:
        options: Any = {name: value for name, value in given.items() if value is not None}
        show(cli, await operations.add_schedule(client, id, kind, value, **options))


@command(app, "ls", example="perdure schedules ls")
async def ls(cli: Cli) -> None:
    """List the schedules by their ids."""
    async with cli.client() as client:
        found = await operations.list_schedules(client)
    cli.out.rows(found, columns(cli.out.times), id=lambda s: s.id)
    if not found and cli.out.for_people:
        cli.out.note("no schedule yet; add one: perdure schedules add nightly KIND --cron '0 3 * * *'")


@command(app, "get", example="perdure schedules get nightly")
async def get(cli: Cli, id: Id) -> None:
    """Show a schedule."""
    async with cli.client() as client:
        show(cli, await operations.get_schedule(client, id))


@command(app, "next", example="perdure schedules next nightly -n 3")
async def next_times(
    cli: Cli,
    id: Id,
    count: Annotated[int, typer.Option("-n", "--count", metavar="N", help="How many; at most 1,000")] = 5,
) -> None:
    """Print its next times, also if it is paused."""
    async with cli.client() as client:
        times = await operations.next_times(client, id, count)
    print_times(cli, times)


@command(app, "pause", example="perdure schedules pause nightly")
async def pause(cli: Cli, id: Id) -> None:
    """Let it start no jobs until it is resumed."""
    async with cli.client() as client:
        show(cli, await operations.pause_schedule(client, id))


@command(app, "resume", example="perdure schedules resume nightly")
async def resume(cli: Cli, id: Id) -> None:
    """Let it go on; what fell due while it was paused is left out."""
    async with cli.client() as client:
        show(cli, await operations.resume_schedule(client, id))


@command(app, "trigger", example="perdure schedules trigger nightly")
async def trigger(cli: Cli, id: Id) -> None:
    """Start a job of it now, and print its id; also if it is paused."""
    async with cli.client() as client:
        handle = await operations.trigger_schedule(client, id)
    if cli.out.for_people or cli.out.mode is Mode.ID:
        print(handle.id)
        if cli.out.for_people:
            cli.out.note(f"watch it: {cli.next(f'jobs watch {bare(handle.id)}')}")
    else:
        cli.out.one({"id": handle.id}, lambda: Text(str(handle.id)), id=str(handle.id))


@command(app, "backfill", example="perdure schedules backfill nightly --from 2026-11-01 --to 2026-11-08 --dry-run")
async def backfill(
    cli: Cli,
    id: Id,
    start: Annotated[str, typer.Option("--from", metavar="TIME", help="The first moment")],
    end: Annotated[str, typer.Option("--to", metavar="TIME", help="The moment after the last")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the times")] = False,
) -> None:
    """Start the jobs of all its times between two moments, now. Those that exist are not started again."""
    first, last = moment(start, "--from", past=True), moment(end, "--to", past=True)
    async with cli.client() as client:
        times = await operations.backfill_schedule(client, id, first, last, dry_run=dry_run)
    print_times(cli, times)


@command(app, "rm", example="perdure schedules rm nightly")
async def rm(cli: Cli, id: Id) -> None:
    """Delete it; its jobs stay."""
    async with cli.client() as client:
        await operations.remove_schedule(client, id)
    cli.out.note(f"{id} is deleted")


def print_times(cli: Cli, times: list[datetime]) -> None:
    """One line each."""
    show = cli.out.times.show
    columns: list[Column[datetime]] = [Column("at", show), Column("utc", lambda at: at.astimezone(UTC).isoformat())]
    cli.out.rows(times, columns, id=lambda at: at.isoformat(), plain=lambda at: {"at": at})


def show(cli: Cli, schedule: Schedule) -> None:
    """Print one schedule."""

    def page() -> Text:
        times = cli.out.times
        lines = [
            f"{schedule.id}: {schedule.kind}, {schedule.rule}, {state_cell(schedule)[0][2:]}",
            f"next     {times.show(schedule.next_at) if schedule.next_at else 'never'}",
        ]
        if schedule.last_at is not None:
            job = f"  job {short(schedule.last_job_id)}" if schedule.last_job_id else ""
            lines.append(f"last     {times.show(schedule.last_at)}{job}")
        if schedule.skipped_at is not None:
            lines.append(f"skipped  {times.show(schedule.skipped_at)}  {schedule.skipped}")
        lines.append(f"overlap  {schedule.overlap}")
        return Text(clean_text("\n".join(lines)))

    cli.out.one(schedule, page, id=schedule.id)
