"""`perdure jobs tree`: a job and what it spawned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated
from uuid import UUID

import typer

from perdure.cli.context import Cli
from perdure.cli.format import Times, one_line, short
from perdure.cli.job_options import Id, app
from perdure.cli.options import command
from perdure.cli.output import Column, status_cell
from perdure.model.children import TreeNode
from perdure.operations import jobs


def columns(times: Times) -> list[Column[TreeNode]]:
    """The columns of `jobs tree`."""
    return [
        Column("job", lambda n: f"{'  ' * n.depth}{short(n.id)} {n.goal or ''}".rstrip(), flexible=True, least=10),
        Column("kind", lambda n: n.kind, flexible=True),
        Column("status", lambda n: status_cell(n.status)),
        Column(times.age_column, lambda n: times.age(n.created_at), right=True),
        Column("error", lambda n: one_line(n.error or ""), flexible=True),
    ]


@command(app, "tree", example="perdure jobs tree 43149ff1")
async def tree(
    cli: Cli,
    id: Id,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", help="At most so many jobs")] = 1000,
) -> None:
    """Show a job and the jobs that it spawned, each below its parent."""
    async with cli.client() as client:
        found = await jobs.tree_of_job(client, id, limit=limit)
    cli.out.rows([*below(found)], columns(cli.out.times), id=lambda n: str(n.id))
    if len(found) == limit and cli.out.for_people:
        cli.out.note(f"there may be more than {limit:,}: --limit")


def below(found: Sequence[TreeNode]) -> Iterator[TreeNode]:
    """A tree that comes level by level, in the order in which it is printed: each job before its children."""
    children: dict[UUID | None, list[TreeNode]] = {}
    for node in found[1:]:
        children.setdefault(node.parent_id, []).append(node)
    waiting = [*found[:1]]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(children.get(node.id, []))
