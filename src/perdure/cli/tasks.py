"""`perdure tasks`: read and control tasks, the jobs that run a coding CLI."""

from __future__ import annotations

import asyncio
import io
import secrets
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from perdure.cli import inputs, job_control, job_queries
from perdure.cli import job_table as jobtable
from perdure.cli.context import Cli
from perdure.cli.flags import Paging
from perdure.cli.format import clean_text
from perdure.cli.job_options import Filters, Id, Ids, Reason, Since, Statuses, Until
from perdure.cli.options import command, group
from perdure.cli.output import Mode
from perdure.cli.usage_error import Usage
from perdure.model.task_records import DIFF
from perdure.operations import tasks as operations
from perdure.operations.jobs import JobPage

app = group("Read and control tasks: jobs that run a coding CLI.", "perdure tasks ls")
artifacts = group("The files of a task.", "perdure tasks artifacts ls 43149ff1")
app.add_typer(artifacts, name="artifacts")

POLL = 0.5
"""Seconds between two looks at the output of a running task."""

Path_ = Annotated[str, typer.Argument(metavar="PATH", help="As `tasks artifacts ls` shows it")]
Attempt = Annotated[
    int | None, typer.Option("--attempt", metavar="N", help="Of this attempt; default: the last one that wrote it")
]
IsInput = Annotated[bool, typer.Option("--input", help="An input file, not one that the task wrote")]


@command(app, "ls", example="perdure tasks ls --status failed,deadletter --since 24h\nperdure tasks ls --tool codex")
async def ls(
    cli: Cli,
    page: Paging,
    tool: Annotated[list[str] | None, typer.Option("--tool", metavar="TOOL", help="Of this tool")] = None,
    status: Statuses = None,
    since: Since = None,
    until: Until = None,
) -> None:
    """List tasks, newest first."""
    wanted = Filters(status=status, since=since, until=until).selection()
    async with cli.client() as client:

        async def fetch(limit: int, cursor: str | None) -> JobPage:
            return await operations.list_tasks(client, wanted, tools=inputs.names(tool), limit=limit, cursor=cursor)

        nothing = "no task matches"
        await cli.list(page, fetch, jobtable.columns(cli.out.times, {}), id=lambda j: j.id, nothing=nothing)


@command(app, "get", example="perdure tasks get 43149ff1\nperdure tasks get 43149ff1 --with-files -o json")
async def get(
    cli: Cli,
    ids: Ids,
    with_files: Annotated[bool, typer.Option("--with-files", help="Also the files, with their contents")] = False,
) -> int:
    """Show a task: its facts, its runs, what each gave; with --with-files its files as well."""
    from perdure.cli.task_page import as_json, task_page

    chosen = inputs.ids_given(ids)
    async with cli.client() as client:
        records, code = await cli.each(chosen, lambda task: operations.get_task(client, task, with_files=with_files))
    if cli.out.mode is Mode.JSON:
        cli.out.rows(records, [], id=lambda r: r.job.id, plain=as_json)
        return code
    for record in records:
        cli.out.one(
            record,
            lambda record=record: task_page(record, cli.out.times, cli.out.width),  # type: ignore[misc]  # bound now
            id=record.job.id,
            plain=as_json,
        )
    return code


@command(app, "watch", example="perdure tasks watch 43149ff1 --timeout 30m")
async def watch(
    cli: Cli,
    ids: Ids,
    timeout: Annotated[str | None, typer.Option("--timeout", metavar="DURATION", help="Give up after this")] = None,
) -> int:
    """Follow tasks until they have ended, as `jobs watch` does."""
    return await job_queries.watch(cli, Filters(), ids, timeout=timeout)


@command(app, "rerun", example="perdure tasks rerun 43149ff1")
async def rerun(cli: Cli, ids: Ids, reason: Reason = None) -> int:
    """Start new tasks with the same input and files, and print their ids. The old ones stay as they are."""
    return await job_control.rerun(cli, Filters(), ids, reason)


@command(app, "logs", example="perdure tasks logs 43149ff1\nperdure tasks logs 43149ff1 -f")
async def logs(
    cli: Cli,
    id: Id,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the task has ended")] = False,
    stderr: Annotated[bool, typer.Option("--stderr", help="What it wrote to stderr as well")] = False,
) -> None:
    """Print what a task writes, also while it runs. Characters that control a terminal are escaped."""
    after = (0, 0)
    async with cli.client() as client:
        while True:
            written = await operations.read_task_output(client, id, after=after)
            for chunk in written.chunks:
                after = chunk.attempt, chunk.seq
                if cli.out.for_programs:
                    cli.out.json_line({**chunk._asdict(), "content": chunk.content.decode(errors="replace")})
                elif chunk.stream == "stdout" or stderr:
                    text = clean_text(chunk.content.decode(errors="replace"))
                    print(text, end="", flush=True, file=sys.stderr if chunk.stream == "stderr" else sys.stdout)
            if not follow or written.finished:
                return
            await asyncio.sleep(POLL)


@command(app, "cancel", example="perdure tasks cancel 43149ff1 --reason 'no longer needed'")
async def cancel(cli: Cli, ids: Ids, reason: Reason = None) -> int:
    """Cancel tasks, in any state. The CLI of a running one is ended with all that it started."""
    return await job_control.cancel(cli, Filters(), ids, reason)


@command(app, "requeue", example="perdure tasks requeue 43149ff1")
async def requeue(cli: Cli, ids: Ids, reason: Reason = None) -> int:
    """Run tasks again: one that has ended as a new task, whose id is printed; one that waits for a retry now."""
    chosen = inputs.ids_given(ids)
    async with cli.client() as client:

        async def again(id: str) -> operations.Requeued:
            done = await operations.requeue_task(client, id, reason=reason)
            if cli.out.for_people:
                print(done.id, flush=True)
                if done.id == done.old_id:
                    cli.out.note("due now")
            return done

        done, code = await cli.each(chosen, again)
    if not cli.out.for_people:
        cli.out.rows(done, [], id=lambda r: r.id)
    return code


@command(artifacts, "ls", example="perdure tasks artifacts ls 43149ff1")
async def artifacts_ls(cli: Cli, id: Id) -> None:
    """List the files of a task: its inputs, then what each attempt wrote."""
    from perdure.cli.task_page import file_as_json, file_columns

    async with cli.client() as client:
        found = await operations.list_task_files(client, id)
    cli.out.rows(found, file_columns(), id=lambda f: f.id, plain=file_as_json)
    if not found:
        cli.out.note("the task has no files")


@command(artifacts, "cat", example="perdure tasks artifacts cat 43149ff1 fix.patch | git apply")
async def artifacts_cat(cli: Cli, id: Id, path: Path_, attempt: Attempt = None, is_input: IsInput = False) -> None:
    """Write a file to stdout, byte for byte. On a terminal, characters that control it are escaped."""
    sys.stdout.flush()
    async with cli.client() as client:
        if not sys.stdout.isatty():
            await operations.copy_task_file(
                client, id, path, attempt=attempt, is_input=is_input, on_piece=sys.stdout.buffer.write
            )
            sys.stdout.buffer.flush()
            return
        with tempfile.TemporaryFile() as whole:
            await operations.copy_task_file(client, id, path, attempt=attempt, is_input=is_input, on_piece=whole.write)
            whole.seek(0)
            for line in io.TextIOWrapper(whole, errors="replace", newline="\n"):
                print(clean_text(line), end="")


@command(artifacts, "diff", example="perdure tasks artifacts diff 43149ff1 | git apply")
async def artifacts_diff(cli: Cli, id: Id, attempt: Attempt = None) -> None:
    """Write to stdout what the task changed in its copy of the repository, as git apply takes it."""
    await artifacts_cat(cli, id, DIFF, attempt)


@command(artifacts, "get", example="perdure tasks artifacts get 43149ff1 fix.patch --to fix.patch")
async def artifacts_get(
    cli: Cli,
    id: Id,
    path: Path_,
    to: Annotated[str | None, typer.Option("--to", metavar="FILE", help="Default: its name, in this folder")] = None,
    attempt: Attempt = None,
    is_input: IsInput = False,
) -> None:
    """Save a file of a task. A file that exists is not replaced."""
    target = Path(to or path.rpartition("/")[2])
    _check_free(target)
    part = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.part")  # until it is whole
    async with cli.client() as client:
        try:
            with part.open("xb") as file:
                size = await operations.copy_task_file(
                    client, id, path, attempt=attempt, is_input=is_input, on_piece=file.write
                )
            _check_free(target)
            part.replace(target)
        except OSError as error:
            raise Usage(f"cannot write '{target}': {error.strerror}") from None
        finally:
            part.unlink(missing_ok=True)
    cli.out.note(f"wrote {target}, {size:,} bytes")


def _check_free(target: Path) -> None:
    if target.exists() or target.is_symlink():
        raise Usage(f"'{target}' exists already", hint="give another name: --to FILE")
