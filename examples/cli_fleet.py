"""A fleet of tasks: a coding CLI describes each of many files, under all accounts that you have for it.

    export FIRST_KEY=... SECOND_KEY=...
    perdure accounts add --id first --tool codex --max 2 --env CODEX_API_KEY=env:FIRST_KEY
    perdure accounts add --id second --tool codex --max 2 --env CODEX_API_KEY=env:SECOND_KEY
    python examples/cli_fleet.py src/*.py

Each file is a task, and what the CLI wrote is put into the folder `descriptions`. When an account meets a limit, it is parked
until the time that the CLI reported, and its tasks go on under the other account without using an attempt. Kill the program and
start it again: what was described is not described again. The tasks are in perdure.db, or where PERDURE_DATABASE_URL says.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from perdure import App, Handle, PerdureError, Status, TaskResult, TaskSpec

DESCRIPTION = "description.md"
PROMPT = f"""\
Describe what the file {{name}} does, in Markdown, in at most ten lines, for a reader who does not know it.
Write the description into the file {DESCRIPTION} in the current directory. Change no other file.
"""

app = App()


def task_of(file: Path, tool: str) -> TaskSpec:
    """What is asked for one file, whose content goes into the workspace."""
    return TaskSpec(tool, PROMPT.format(name=file.name), input_files=(file.name,), output_spec=(DESCRIPTION,))


def key_of(file: Path) -> str:
    """The same for the same content at the same place."""
    return hashlib.sha256(str(file.resolve()).encode() + b"\0" + file.read_bytes()).hexdigest()


async def enqueue(file: Path, tool: str) -> Handle[TaskResult]:
    """The task of a file: the one that an earlier call made for the same content, unless that one failed."""
    handle = await app.tasks.enqueue(task_of(file, tool), files={file.name: file}, idempotency_key=key_of(file))
    failed = (Status.FAILED, Status.DEADLETTER, Status.CANCELLED)
    if not handle.created and await handle.status() in failed:
        return await app.jobs.rerun(handle.id)
    return handle


async def missing(tool: str) -> str | None:
    """What is lacking here for tasks of this tool; None if nothing is. Raises ToolMissing and UnknownTool, which say it."""
    app.serve_tools(tool)
    accounts = [info.account for info in await app.accounts.list() if info.account.tool == tool]
    if not any(account.enabled for account in accounts):
        disabled = [f"perdure accounts enable {account.id}" for account in accounts]
        add = f"perdure accounts add --id first --tool {tool} --max 2 --env KEY_OF_THE_TOOL=env:VARIABLE_THAT_HAS_IT"
        return f"there is no enabled account of {tool}: {' or '.join(disabled) or add}"
    for account in accounts:
        for name, value in account.env.items():
            if account.enabled and value.startswith("env:") and value.removeprefix("env:") not in os.environ:
                return f"the account {account.id} takes {name} from {value.removeprefix('env:')}, which is not set"
    return None


async def follow(file: Path, handle: Handle[TaskResult], folder: Path) -> bool:
    """Say what becomes of a task, and put what it wrote into the folder; True if it did."""
    async for event in handle.watch():
        if event.type == "tool_run_started":
            say(f"{file.name}: runs under {event.payload['account']}")
        elif event.type == "tool_run_ended" and event.payload["class"] == "rate_limited":
            say(f"{file.name}: {event.payload['account']} has met a limit")
    job = await handle.get()
    accounts = [run.account_id or "" for run in await app.tasks.runs(handle.id)]
    under = f"under {', then '.join(accounts) or 'no account'}; retries used: {job.retry_count}"
    if job.status is not Status.COMPLETED:
        say(f"{file.name}: {job.status} {under}; {job.error_message or ''}")
        return False
    target = write(folder, file, await app.tasks.read_file(handle.id, DESCRIPTION))
    say(f"{file.name}: described in {target} {under}")
    return True


def write(folder: Path, file: Path, description: bytes) -> Path:
    """Put a description into the folder, which is made if it is missing; returns where it is."""
    target = folder / f"{str(file).strip('./').replace(os.sep, '_')}.md"
    folder.mkdir(parents=True, exist_ok=True)
    target.write_bytes(description)
    return target


async def warn_when_all_are_parked(tool: str) -> None:
    """Say until when the fleet stands still, each time that comes."""
    said = None
    while True:
        ready = [info for info in await app.accounts.list() if info.account.tool == tool and info.account.enabled]
        times = [info.parked_until for info in ready if info.parked_until is not None]
        if times and len(times) == len(ready) and min(times) not in (said, None) and min(times) > datetime.now(UTC):
            said = min(times)
            say(
                f"every account of {tool} is parked; the first until {said:%Y-%m-%d %H:%M:%S} UTC. Ctrl-C keeps the rest"
            )
        await asyncio.sleep(1)


def say(text: str) -> None:
    """A line, at once, in which a message of a CLI cannot change the terminal."""
    print("".join(c if c.isprintable() else " " for c in text), flush=True)


async def main(files: list[Path], *, tool: str, folder: Path) -> int:
    """Enqueue a task for each file, run them, and say what came of them; 1 if one failed or something is missing."""
    if wrong := [file for file in files if not file.is_file()]:
        print(f"{wrong[0]} is no file", file=sys.stderr)
        return 1
    try:
        async with app:
            if lacking := await missing(tool):
                print(lacking, file=sys.stderr)
                return 1
            fleet = {file: await enqueue(file, tool) for file in files}
            worker = await app.worker()
            working = asyncio.create_task(worker.run())
            warning = asyncio.create_task(warn_when_all_are_parked(tool))
            try:
                done = await asyncio.gather(*(follow(file, handle, folder) for file, handle in fleet.items()))
            finally:
                warning.cancel()
                worker.stop(now=True)
                await working
    except PerdureError as error:
        print("\n".join(filter(None, (error.message, error.hint))), file=sys.stderr)
        return 1
    return 0 if all(done) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Describe files with a coding CLI, under all its accounts.")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--tool", default="codex", help="codex, claude, gemini, or one of yours (default: %(default)s)")
    parser.add_argument(
        "--folder", type=Path, default=Path("descriptions"), help="for the results (default: %(default)s)"
    )
    given = parser.parse_args()
    try:
        sys.exit(asyncio.run(main(given.files, tool=given.tool, folder=given.folder)))
    except KeyboardInterrupt:
        sys.exit("\nstopped; start it again and it goes on with what is not described yet")
