"""The arguments and filters that the commands about jobs share."""

from __future__ import annotations

from dataclasses import dataclass
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
Since = Annotated[str | None, typer.Option("--since", metavar="TIME", help="Created since: 24h, yesterday, or a time")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Created before: 1h, or a time")]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; kept in the job's log")]


@dataclass(slots=True)
class Filters:
    """The options that choose jobs by what they have in common."""

    status: Statuses = None
    kind: Annotated[list[str] | None, typer.Option("--kind", metavar="KIND", help="Of this kind (handler)")] = None
    queue: Annotated[list[str] | None, typer.Option("--queue", metavar="QUEUE", help="In this queue")] = None
    since: Since = None
    until: Until = None
    search: Annotated[
        str | None, typer.Option("--search", metavar="TEXT", help="With this in the goal, the kind or the error")
    ] = None
    tag: Annotated[
        list[str] | None, typer.Option("--tag", metavar="TAG", help="With this tag; or with one of several")
    ] = None

    def selection(self) -> JobSelection:
        """The jobs that they mean. Raises Usage."""
        return JobSelection(
            status=tuple(inputs.names(self.status)),
            kind=tuple(inputs.names(self.kind)),
            queue=tuple(inputs.names(self.queue)),
            since=None if self.since is None else moment(self.since, "--since", past=True),
            until=None if self.until is None else moment(self.until, "--until", past=True),
            search=self.search,
            tags=tuple(inputs.names(self.tag)),
        )
