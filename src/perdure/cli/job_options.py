"""The arguments and filters that the commands about jobs share."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli import inputs
from perdure.cli.format import moment
from perdure.cli.options import group
from perdure.operations.selection import JobSelection

app = group("Start, read and control jobs.", "perdure jobs ls --status running")

Ids = Annotated[list[str], typer.Argument(metavar="ID", help="Jobs; - reads ids from stdin")]
Id = Annotated[str, typer.Argument(metavar="ID", help="A job: its id, or 6 or more of its last hex digits")]
Statuses = Annotated[
    list[str] | None,
    typer.Option("--status", metavar="STATUS", help="With this status; several with commas or repeated"),
]
Kinds = Annotated[list[str] | None, typer.Option("--kind", metavar="KIND", help="Of this kind (handler)")]
Queues = Annotated[list[str] | None, typer.Option("--queue", metavar="QUEUE", help="In this queue")]
Since = Annotated[str | None, typer.Option("--since", metavar="TIME", help="Created since: 24h, yesterday, or a time")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Created before: 1h, or a time")]
Search = Annotated[
    str | None, typer.Option("--search", metavar="TEXT", help="With this in the goal, the kind or the error")
]
Tags = Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="With this tag; or with one of several")]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; kept in the job's log")]


def filters(
    status: list[str] | None,
    kind: list[str] | None,
    queue: list[str] | None,
    since: str | None,
    until: str | None,
    search: str | None,
    tags: list[str] | None = None,
) -> JobSelection:
    """The jobs that the filter options mean. Raises Usage."""
    return JobSelection(
        status=tuple(inputs.names(status)),
        kind=tuple(inputs.names(kind)),
        queue=tuple(inputs.names(queue)),
        since=None if since is None else moment(since, "--since", past=True),
        until=None if until is None else moment(until, "--until", past=True),
        search=search,
        tags=tuple(inputs.names(tags)),
    )
