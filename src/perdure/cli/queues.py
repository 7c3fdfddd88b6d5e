"""`perdure queues`: what waits in each queue; pause and resume."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from perdure.cli.context import Cli
from perdure.cli.format import Times, clean_text, span
from perdure.cli.job_options import Reason
from perdure.cli.options import command, group
from perdure.cli.output import Cell, Column
from perdure.model.queues import QueueInfo, QueuePause
from perdure.operations import queues as operations

app = group("See what waits in each queue; pause and resume queues.", "perdure queues ls")

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="A queue")]


def columns(times: Times) -> list[Column[QueueInfo]]:
    """The columns of `queues ls`."""
    return [
        Column("state", _state),
        Column("queue", lambda q: q.name, least=12),
        Column(
            "jobs", lambda q: ", ".join(f"{n:,} {status}" for status, n in q.counts.items()) or "none", flexible=True
        ),
        Column("oldest_ready", lambda q: "" if q.oldest_ready is None else span(int(q.oldest_ready))),
        Column("paused_by", lambda q: q.pause.paused_by if q.pause else ""),
        Column("since", lambda q: times.show(q.pause.paused_at) if q.pause else ""),
        Column("reason", lambda q: (q.pause.reason or "") if q.pause else "", flexible=True),
    ]


def _state(queue: QueueInfo) -> Cell:
    return ("◔ paused", "yellow") if queue.paused else ("● open", "green")


@command(app, "ls", example="perdure queues ls\nperdure queues ls -o json")
async def ls(cli: Cli) -> None:
    """List the queues in which jobs wait or run, and those that are paused."""
    async with cli.client() as client:
        found = await operations.list_queues(client)
    cli.out.rows(found, columns(cli.out.times), id=lambda q: q.name)
    if not found and cli.out.for_people:
        cli.out.note("no job waits or runs, and no queue is paused")


@command(app, "pause", example="perdure queues pause mail --reason 'the provider is down'")
async def pause(cli: Cli, queue: Name, reason: Reason = None) -> None:
    """Let no worker claim jobs of a queue. Jobs that run go on; jobs are enqueued as always, and wait."""
    async with cli.client(creates=True) as client:
        _show(cli, await operations.pause_queue(client, queue, reason=reason))


@command(app, "resume", example="perdure queues resume mail")
async def resume(cli: Cli, queue: Name, reason: Reason = None) -> None:
    """Let workers claim jobs of a queue again."""
    async with cli.client() as client:
        ended = await operations.resume_queue(client, queue, reason=reason)
    if ended is None:
        cli.out.rows([], columns(cli.out.times), id=lambda q: q.name)
        cli.out.note(f"queue {queue} is not paused")
        return
    _show(cli, ended)


@command(app, "pauses", example="perdure queues pauses\nperdure queues pauses mail --limit 5")
async def pauses(
    cli: Cli,
    queue: Annotated[str | None, typer.Argument(metavar="QUEUE", help="Of this queue only")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="So many")] = 50,
) -> None:
    """List who paused and resumed queues, when and why, the newest first."""
    async with cli.client() as client:
        found = await operations.list_pauses(client, queue, limit=limit)
    show = cli.out.times.show
    shown: list[Column[QueuePause]] = [
        Column("queue", lambda p: p.queue, least=12),
        Column("paused", lambda p: show(p.paused_at)),
        Column("by", lambda p: p.paused_by),
        Column("reason", lambda p: p.reason or "", flexible=True),
        Column("resumed", lambda p: show(p.resumed_at)),
        Column("resumed_by", lambda p: p.resumed_by or ""),
        Column("resumed_reason", lambda p: p.resumed_reason or "", wide=True, flexible=True),
    ]
    cli.out.rows(found, shown, id=lambda p: p.id)
    if not found and cli.out.for_people:
        cli.out.note("no queue was ever paused" if queue is None else f"queue {queue} was never paused")


def _show(cli: Cli, pause: QueuePause) -> None:
    def line() -> Text:
        times = cli.out.times
        why = f": {pause.reason}" if pause.reason else ""
        if pause.resumed_at is None:
            text = f"queue {pause.queue} is paused by {pause.paused_by} since {times.show(pause.paused_at)}{why}"
        else:
            text = (
                f"queue {pause.queue} is open again; {pause.paused_by} had paused it {times.show(pause.paused_at)}{why}"
            )
        return Text(clean_text(text))

    cli.out.one(pause, line, id=pause.queue)
