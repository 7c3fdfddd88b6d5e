"""`perdure memory`: long-term memory."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from perdure.cli.context import Cli
from perdure.cli.flags import Paging
from perdure.cli.format import Times, clean_text, moment, short
from perdure.cli.inputs import read_text
from perdure.cli.options import command, group
from perdure.cli.output import Cell, Column
from perdure.model.jobs import Page
from perdure.model.memory import MemoryEntry, MemoryHit
from perdure.operations import memory as operations

app = group("Search and write long-term memory.", "perdure memory search 'how was the log problem solved?'")

Id = Annotated[str, typer.Argument(metavar="ID", help="An entry, or the last 6 or more digits of its id")]
Scopes = Annotated[
    list[str] | None,
    typer.Option("--scope", metavar="SCOPE", help="user:ID, agent:ID, job:ID, project:NAME or tenant; repeatable"),
]
Tags = Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="Repeatable")]
Source = Annotated[str | None, typer.Option("--source", metavar="TEXT", help="Where it is from")]


def columns(times: Times) -> list[Column[MemoryEntry]]:
    """The columns of `memory ls`."""
    return [
        Column("state", state_cell),
        Column("memory", lambda e: short(e.id)),
        Column("scope", lambda e: e.scope, least=10),
        Column("kind", lambda e: e.kind),
        Column("written", lambda e: times.show(e.created_at)),
        Column("by", lambda e: short(e.job_id) if e.job_id else e.created_by),
        Column("tags", lambda e: " ".join(e.tags), wide=True),
        Column("text", lambda e: clean_text(e.text), flexible=True),
    ]


def state_cell(entry: MemoryEntry) -> Cell:
    """Whether searches find it."""
    if entry.superseded_by is not None:
        return "○ superseded", "dim"
    if not entry.live:
        return "○ archived", "dim"
    return ("◆ pinned", "cyan") if entry.pinned else ("● live", "green")


def hit_columns(times: Times) -> list[Column[MemoryHit]]:
    """The columns of `memory search`."""
    return [
        Column("score", lambda h: f"{h.score:.4f}", right=True),
        Column("memory", lambda h: short(h.entry.id)),
        Column("scope", lambda h: h.entry.scope, least=10),
        Column("written", lambda h: times.show(h.entry.created_at)),
        Column("text", lambda h: clean_text(h.passage), flexible=True),
        Column("why", lambda h: h.why, wide=True, flexible=True),
    ]


@command(
    app,
    "search",
    example="""\
perdure memory search '上次那个日志问题后来怎么解决的?'
perdure memory search 'connection pool' -k 3 --scope project:shop --explain""",
)
async def search(
    cli: Cli,
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="Words, or a whole sentence, in English, Chinese or both")
    ],
    k: Annotated[int, typer.Option("-k", metavar="N", help="How many; at most 100")] = 5,
    mode: Annotated[
        str, typer.Option("--mode", metavar="MODE", help="hybrid (default), text (words alone) or vector")
    ] = "hybrid",
    scope: Scopes = None,
    tag: Tags = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Only what was written since: 7d, 2026-11-01")
    ] = None,
    kind: Annotated[str | None, typer.Option("--kind", metavar="KIND", help="Only entries of this kind")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Also say why each was found")] = False,
) -> None:
    """Find the entries that fit a question best."""
    start = None if since is None else moment(since, "--since", past=True)
    async with cli.client() as client:
        found = await operations.search_memory(
            client, query, k, mode=mode, scope=scope or (), tags=tag or (), since=start, kind=kind
        )
    cli.out.rows(found, hit_columns(cli.out.times), id=lambda h: str(h.entry.id))
    if cli.out.for_people:
        if explain:
            for hit in found:
                cli.out.note(f"{short(hit.entry.id)}: {hit.why}")
        if not found:
            cli.out.note("nothing in memory fits; what there is: perdure memory ls")


@command(
    app,
    "write",
    example="""\
perdure memory write 'The log problem was an exhausted connection pool' --tag logs
perdure memory write @notes.txt --scope project:shop""",
)
async def write(
    cli: Cli,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text, @file, or - for stdin")],
    tag: Tags = None,
    source: Source = None,
    kind: Annotated[str | None, typer.Option("--kind", metavar="KIND", help="A word of yours; default note")] = None,
    scope: Annotated[
        str | None, typer.Option("--scope", metavar="SCOPE", help="Whose it is; default user:<tenant>")
    ] = None,
) -> None:
    """Write an entry. Every process finds it from then on."""
    whole = read_text(text, "TEXT")
    async with cli.client(creates=True) as client:
        show(cli, await operations.write_memory(client, whole, tags=tag or (), source=source, kind=kind, scope=scope))


@command(app, "get", example="perdure memory get 7f3c2a91")
async def get(cli: Cli, id: Id) -> None:
    """Show an entry."""
    async with cli.client() as client:
        show(cli, await operations.get_memory(client, id))


@command(app, "ls", example="perdure memory ls\nperdure memory ls --scope user:ann --archived")
async def ls(
    cli: Cli,
    page: Paging,
    scope: Scopes = None,
    job: Annotated[str | None, typer.Option("--job", metavar="ID", help="Only what this job wrote")] = None,
    archived: Annotated[bool, typer.Option("--archived", help="Those that searches do not find")] = False,
) -> None:
    """List entries, newest first."""
    async with cli.client() as client:

        async def fetch(limit: int, cursor: str | None) -> Page[MemoryEntry]:
            return await operations.list_memory(
                client, scope=scope or (), live=not archived, job=job, limit=limit, cursor=cursor
            )

        await cli.list(page, fetch, columns(cli.out.times), id=lambda e: str(e.id), nothing="no entry")


@command(app, "supersede", example="perdure memory supersede 7f3c2a91 'The pool has 50 connections now'")
async def supersede(
    cli: Cli,
    id: Id,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The new text, @file, or - for stdin")],
    tag: Tags = None,
    source: Source = None,
) -> None:
    """Replace an entry by a new one of the same scope; the old one stays and says so."""
    whole = read_text(text, "TEXT")
    async with cli.client() as client:
        show(cli, await operations.supersede_memory(client, id, whole, tags=tag, source=source))


@command(app, "archive", example="perdure memory archive 7f3c2a91")
async def archive(cli: Cli, id: Id) -> None:
    """Let searches find an entry no longer. It stays."""
    async with cli.client() as client:
        show(cli, await operations.archive_memory(client, id))


@command(app, "restore", example="perdure memory restore 7f3c2a91")
async def restore(cli: Cli, id: Id) -> None:
    """Let searches find an entry again that was archived or superseded."""
    async with cli.client() as client:
        show(cli, await operations.restore_memory(client, id))


@command(app, "pin", example="perdure memory pin 7f3c2a91\nperdure memory pin 7f3c2a91 --off")
async def pin(
    cli: Cli, id: Id, off: Annotated[bool, typer.Option("--off", help="Let it count as others do again")] = False
) -> None:
    """Let an entry count more than others that fit as well."""
    async with cli.client() as client:
        show(cli, await operations.pin_memory(client, id, pinned=not off))


@command(app, "undo", example="perdure memory undo 7f3c2a91")
async def undo(cli: Cli, job: Annotated[str, typer.Argument(metavar="JOB", help="A job")]) -> None:
    """Archive all that a job wrote; what that had superseded is found again."""
    async with cli.client() as client:
        found = await operations.undo_memory(client, job)
    cli.out.rows(found, columns(cli.out.times), id=lambda e: str(e.id))
    if cli.out.for_people:
        cli.out.note(f"archived: {len(found)}")


@command(app, "export", example="perdure memory export > memory.jsonl")
async def export(cli: Cli, scope: Scopes = None) -> None:
    """Print all entries as lines of JSON, also archived ones. `import` reads them."""
    async with cli.client() as client:
        async for line in operations.export_memory(client, scope=scope or ()):
            print(line)


@command(app, "import", example="perdure memory import @memory.jsonl")
async def import_(cli: Cli, file: Annotated[str, typer.Argument(metavar="FILE", help="@file, or - for stdin")]) -> None:
    """Write the entries of an export that are not there. A file that is damaged or cut off is refused as a whole."""
    lines = read_text(file, "FILE").split("\n")
    async with cli.client(creates=True) as client:
        done = await operations.import_memory(client, lines)
    cli.out.one(done, lambda: Text(f"{done.read} entries in the file, {done.written} written"), id=str(done.written))


@command(app, "reindex", example="perdure memory reindex")
async def reindex(
    cli: Cli,
    scope: Scopes = None,
    every: Annotated[bool, typer.Option("--all", help="Every entry, also those that need it not")] = False,
) -> None:
    """Make the search terms and vectors again of entries that lack them or have those of another version."""
    async with cli.client() as client:
        done = await operations.reindex_memory(client, scope=scope or (), every=every)
    cli.out.one({"reindexed": done}, lambda: Text(f"{done} entries"), id=str(done))


def show(cli: Cli, entry: MemoryEntry) -> None:
    """Print one entry."""

    def page() -> Text:
        times = cli.out.times
        by = f"job {short(entry.job_id)}" if entry.job_id else entry.created_by
        lines = [
            f"{short(entry.id)}  {state_cell(entry)[0][2:]}  {entry.scope}  {entry.kind}",
            f"written  {times.show(entry.created_at)} by {by}",
        ]
        if entry.source:
            lines.append(f"source   {entry.source}")
        if entry.tags:
            lines.append(f"tags     {' '.join(entry.tags)}")
        if entry.superseded_by is not None:
            lines.append(f"replaced by {short(entry.superseded_by)}")
        return Text(clean_text("\n".join([*lines, "", entry.text])))

    cli.out.one(entry, page, id=str(entry.id))
