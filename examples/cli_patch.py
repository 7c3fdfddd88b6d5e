"""An agent whose steps are coding CLIs: one writes a patch, one reviews it, a person approves it, and it is applied.

    perdure accounts add --id mine --tool codex --env CODEX_API_KEY=env:CODEX_API_KEY
    python examples/cli_patch.py "Add a --version flag"                          # to the repository of this directory
    python examples/cli_patch.py "Add a --version flag" ~/src/project --writer codex --reviewer claude

The writer works in a copy of the last commit; nothing changes in the repository before you approve the patch, which you may edit
(`perdure approvals approve ID --edit`). Kill the program at any moment and start it again: a CLI that has answered does not
run again. Or let workers do it: `perdure worker start --app cli_patch:app --tools codex,claude`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from perdure import App, Fail, Handle, JobCancelled, JobContext, JobFailed, PerdureError, TaskSpec

WRITE = (
    "Change the code in the current directory as asked. Keep the change small, and commit nothing. What is asked:\n\n"
)
REVIEW = """\
Review the file change.patch, a patch that another program has written. Answer with one line, OK or NOT OK, and then say
what is wrong with it, in at most ten lines. Change no file. What had been asked for:

"""

app = App()


@dataclass(frozen=True)
class Wanted:
    """The input. repository: absolute, as the worker may run in another directory. writer, reviewer: tools."""

    change: str
    repository: str
    writer: str
    reviewer: str


@dataclass(frozen=True)
class Proposal:
    """What a person is asked to approve, and may edit."""

    patch: str
    review: str


@app.job
async def change_code(ctx: JobContext, wanted: Wanted) -> list[str]:
    """The paths that the patch changed. Each `run_tool` is a job of its own, which runs once, however often this one is
    replayed."""
    task = TaskSpec(wanted.writer, WRITE + wanted.change, repo=wanted.repository)
    written = await ctx.run_tool(task, key="write")
    if not written.ok:
        raise Fail(f"no patch was written: {written.error}", kind=written.error_kind or "fatal")
    if not written.diff:
        raise Fail(f"there is no patch, or one of more than 1 MiB. {wanted.writer} says: {written.text[:500]}")
    if "\ufffd" in written.diff:
        raise Fail("the patch is no text in UTF-8")
    asked = TaskSpec(wanted.reviewer, REVIEW + wanted.change, input_files=("change.patch",))
    review = await ctx.run_tool(asked, files={"change.patch": written.diff.encode()}, key="review")
    said = review.text if review.ok else f"there is no review: {review.error}"
    proposal = Proposal(written.diff, said)
    decision = await ctx.approve("apply", title=f"Apply this patch to {wanted.repository}?", payload=proposal)
    # Applying a patch that is applied already changes nothing: after a crash in the middle it is simply applied again.
    apply = ctx.options(on_unknown="retry")
    return await apply.tool("apply", apply_patch, wanted.repository, decision.payload.patch)


def apply_patch(repository: str, patch: str) -> list[str]:
    """Apply it to the files of the repository, all of it or nothing; the paths that it changes."""
    paths = git(repository, "apply", "--numstat", given=patch)
    if paths.returncode:
        raise Fail(f"this is no patch: {paths.stderr.strip()}")
    if git(repository, "apply", "--reverse", "--check", given=patch).returncode:  # it is not applied yet
        applied = git(repository, "apply", given=patch)
        if applied.returncode:
            raise Fail(f"the patch does not fit the repository any more: {applied.stderr.strip()}")
    return [line.split("\t", 2)[2] for line in paths.stdout.splitlines()]


def git(repository: str, *command: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run git in the repository; a hook's GIT_DIR does not mislead it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        return subprocess.run(
            ["git", "-C", repository, *command],
            input=given,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except FileNotFoundError:
        raise Fail("git is not installed on this worker") from None


# -- as a program of its own: a client and a worker in one process --------------------------------------------------------


async def missing(wanted: Wanted) -> str | None:
    """What is lacking here; None if nothing is. Raises ToolMissing and UnknownTool, which say it."""
    if git(wanted.repository, "rev-parse", "--verify", "--quiet", "HEAD^{commit}").returncode:
        return f"{wanted.repository} is no git repository with commits"
    tools = {wanted.writer, wanted.reviewer}
    app.serve_tools(*tools)
    accounts = [info.account for info in await app.accounts.list() if info.account.enabled]
    for tool in sorted(tools):
        if not any(account.tool == tool for account in accounts):
            add = f"perdure accounts add --id {tool}-main --tool {tool} --env KEY_OF_THE_TOOL=env:VARIABLE_THAT_HAS_IT"
            return f"there is no enabled account of {tool}: {add}"
    for account in accounts:
        for name, value in account.env.items():
            if account.tool in tools and value.startswith("env:") and value.removeprefix("env:") not in os.environ:
                return f"the account {account.id} takes {name} from {value.removeprefix('env:')}, which is not set"
    return None


async def main(wanted: Wanted, *, yes: bool) -> int:
    """Enqueue the job, or go on with the one that was interrupted; work until it is finished. 0 if the patch is applied."""
    try:
        async with app:
            if lacking := await missing(wanted):
                print(lacking, file=sys.stderr)
                return 1
            open_jobs = await app.jobs.list(kind="change_code", status=["PENDING", "RETRY", "PARKED", "RUNNING"])
            asked = await app.jobs.list(kind="change_code", status=["WAITING_FOR_APPROVAL"])
            same = [job for job in (*open_jobs.items, *asked.items) if job.payload == asdict(wanted)]
            handle = app.jobs.handle(same[0].id) if same else await app.enqueue(change_code, wanted)
            say(f"{'going on with' if same else 'enqueued'} job …{(await handle.get()).short_id}")
            worker = await app.worker()
            working = asyncio.create_task(worker.run())
            try:
                return await follow(handle, yes=yes)
            finally:
                worker.stop(now=True)
                await working
    except (PerdureError, Fail) as error:
        print("\n".join(filter(None, (str(error), getattr(error, "hint", None)))), file=sys.stderr)
        return 1


async def follow(handle: Handle[list[str]], *, yes: bool) -> int:
    """Say what the job does, ask for the answer to its question, and say how it ended."""
    async for event in handle.watch():
        if event.type == "child_spawned":
            say(f"  {event.payload['key']}: {event.payload['kind']} is task …{event.payload['child'][-8:]}")
        elif event.type == "approval_requested":
            approval = await app.approvals.get(event.payload["approval"])
            if approval.status != "PENDING":
                continue
            say(f"\n{approval.payload['patch']}\nThe review:\n{approval.payload['review']}\n")
            if not yes and not sys.stdin.isatty():
                say(f"{approval.title}\nIt waits for an answer: perdure approvals approve {approval.short_id}")
                return 1
            if yes or (await answer(f"{approval.title} [y/N] ")) in ("y", "yes"):
                await app.approve(approval.id)
            else:
                await app.deny(approval.id, comment="not like this")
    try:
        say(f"changed {', '.join(await app.jobs.result(handle.id, output_type=list[str]))}")
    except (JobFailed, JobCancelled) as error:
        say(error.message, to=sys.stderr)
        return 1
    return 0


def say(text: str, to: TextIO | None = None) -> None:
    """Print text at once, in which what a CLI wrote cannot change the terminal."""
    print("".join(c if c.isprintable() or c in "\n\t" else " " for c in text), flush=True, file=to)


async def answer(question: str) -> str:
    """A line from the terminal, without stopping the worker for it."""
    print(question, end="", flush=True)
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()
    loop.add_reader(sys.stdin, lambda: None if line.done() else line.set_result(sys.stdin.readline()))
    try:
        return (await line).strip().lower()
    finally:
        loop.remove_reader(sys.stdin)


def parse(arguments: list[str]) -> tuple[Wanted, bool]:
    """What is wanted, and whether to approve without asking."""
    parser = argparse.ArgumentParser(description="Let a coding CLI write a patch, and another one review it.")
    parser.add_argument("change", help="what to change, in words")
    parser.add_argument("repository", nargs="?", default=".", help="default: that of the current directory")
    parser.add_argument("--writer", default="codex", help="the tool that writes (default: %(default)s)")
    parser.add_argument("--reviewer", help="the tool that reviews (default: the one that writes)")
    parser.add_argument("--yes", action="store_true", help="approve the patch without asking")
    given = parser.parse_args(arguments)
    top = git(given.repository, "rev-parse", "--show-toplevel").stdout.strip()
    repository = str(Path(top or given.repository).resolve())
    return Wanted(given.change, repository, given.writer, given.reviewer or given.writer), given.yes


if __name__ == "__main__":
    wanted_change, approve_it = parse(sys.argv[1:])
    try:
        sys.exit(asyncio.run(main(wanted_change, yes=approve_it)))
    except KeyboardInterrupt:
        sys.exit("\nstopped; start it again and it goes on where it was")
