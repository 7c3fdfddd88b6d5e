"""`perdure jobs batch`: the jobs of a batch."""

from __future__ import annotations

from collections import Counter

from perdure.cli.context import Cli
from perdure.cli.job_options import Id, app
from perdure.cli.options import command
from perdure.cli.output import Column, status_cell
from perdure.model.batches import BatchJob
from perdure.operations import jobs


def columns() -> list[Column[BatchJob]]:
    """The columns of `jobs batch`."""
    return [
        Column("status", lambda j: status_cell(j.status)),
        Column("job", lambda j: str(j.id)),
        Column("kind", lambda j: j.kind, flexible=True),
    ]


@command(app, "batch", example="perdure jobs batch 43149ff1")
async def batch(cli: Cli, id: Id) -> None:
    """Show the jobs of a batch, by the id of the job that starts when all of them have ended."""
    async with cli.client() as client:
        found = await jobs.batch_of_job(client, id)
    cli.out.rows(found.jobs, columns(), id=lambda j: j.id)
    if cli.out.for_people:
        counts = Counter(str(job.status) for job in found.jobs)
        cli.out.note(", ".join(f"{n} {status}" for status, n in sorted(counts.items())) + f", of {found.total}")
