"""What the commands do that control many jobs by filters instead of ids: count, ask, go batch by batch, report."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from perdure.cli import inputs
from perdure.cli.context import Cli
from perdure.cli.format import one_line, short
from perdure.cli.output import status_cell
from perdure.cli.usage_error import Usage
from perdure.model.job_changes import BulkResult
from perdure.operations.selection import JobSelection

if TYPE_CHECKING:
    from rich.text import Text

EVERY = 1.0
"""Seconds between two lines of progress."""

SomeIds = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Jobs; - reads ids from stdin")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say how many jobs match, and show some of them")]


class Act(Protocol):
    """One of the operations on many jobs, but for its filter."""

    async def __call__(self, *, dry_run: bool, on_batch: Callable[[int], None] | None = None) -> BulkResult:
        """Do it."""
        ...


def chosen(ids: Sequence[str] | None, which: JobSelection, dry_run: bool) -> list[str] | None:
    """The ids that were typed; None: filters were. Raises Usage."""
    if ids and which:
        raise Usage("give ids or filters, not both")
    if ids:
        if dry_run:
            raise Usage("--dry-run counts the jobs of a filter; these are named already")
        return inputs.ids_given(ids)
    if not which:
        raise Usage("give ids, or filters such as --status and --kind", hint="a filter means all jobs that match it")
    return None


async def do_to_all(cli: Cli, verb: str, past: str, act: Act, *, dry_run: bool) -> None:
    """Count, ask, do it with progress, report."""
    from rich.text import Text

    found = await act(dry_run=True)
    if dry_run:
        cli.out.one(found, lambda: _dry_page(found, past), id=found.matched)
        return
    if not found.matched:
        cli.out.one(found, lambda: Text("no job matches"), id=0)
        return
    cli.confirm(f"{verb} {_jobs(found)}?")
    reached, last = 0, time.monotonic()

    def on_batch(number: int) -> None:
        nonlocal reached, last
        reached = number
        if time.monotonic() - last >= EVERY:
            last = time.monotonic()
            cli.out.note(f"{number:,} of {found.matched:,}")

    try:
        done = await act(dry_run=False, on_batch=on_batch)
    except (Exception, asyncio.CancelledError):
        cli.out.note(f"stopped: {past} {reached:,} of {found.matched:,}; the same command goes on with the rest")
        raise
    left = f"; {done.skipped:,} left as they were" if done.skipped else ""
    cli.out.one(done, lambda: Text(f"{past} {done.done:,} of {_jobs(done)}{left}"), id=done.done)


def _jobs(found: BulkResult) -> str:
    parts = ", ".join(f"{number:,} {status}" for status, number in found.counts.items())
    return f"{found.matched:,} {'job' if found.matched == 1 else 'jobs'} ({parts})" if parts else "0 jobs"


def _dry_page(found: BulkResult, past: str) -> Text:
    from rich.text import Text

    text = Text(f"{_jobs(found)} would be {past}\n")
    for job in found.sample:
        word, style = status_cell(job.status)
        text.append("  ").append(word, style).append(
            f"  {short(job.id)}  {one_line(job.kind)}  {one_line(job.goal or '')}\n"
        )
    if found.matched > len(found.sample):
        text.append(f"  and {found.matched - len(found.sample):,} more\n", "dim")
    return text
