"""`perdure enqueue`: start a task."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli import inputs, task_inputs
from perdure.cli.context import Cli
from perdure.cli.format import bare, duration, moment
from perdure.cli.job_start import follow_to_end
from perdure.cli.options import command, group
from perdure.cli.output import Mode
from perdure.model.errors import PerdureError
from perdure.model.tooling import TaskSpec
from perdure.operations.accounts import list_accounts
from perdure.operations.tasks import enqueue_task, get_task

if TYPE_CHECKING:
    from perdure import Client

app = group("Start a task.", "perdure enqueue --tool codex --prompt @task.md")


@command(
    app,
    "enqueue",
    example="""\
perdure enqueue --tool codex --prompt @task.md --output-spec '*.patch'
perdure enqueue --tool claude --prompt 'write the tests' --file src/app.py --output-spec 'tests/**' --wait
git diff | perdure enqueue --tool gemini --prompt - --account gemini-main
perdure enqueue --from-file task.json --priority 9""",
)
async def enqueue(
    cli: Cli,
    tool: Annotated[
        str | None, typer.Option("--tool", metavar="TOOL", help="codex, claude, gemini, or one of the settings")
    ] = None,
    prompt: Annotated[str | None, typer.Option("--prompt", metavar="TEXT", help="Text, @file, or - for stdin")] = None,
    from_file: Annotated[
        str | None,
        typer.Option("--from-file", metavar="FILE", help="A task as JSON, or - for stdin; options go before its keys"),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", metavar="MODEL", help="Default: the tool's own")] = None,
    file: Annotated[
        list[str] | None,
        typer.Option("--file", metavar="[PATH=]FILE", help="A file to put into the workspace, there under PATH"),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env", metavar="NAME[=VALUE]", help="Environment of the tool; a secret as NAME=env:VARIABLE of the worker"
        ),
    ] = None,
    mcp: Annotated[
        list[str] | None,
        typer.Option("--mcp", metavar="NAME=COMMAND", help="A further MCP server; @file.json has several"),
    ] = None,
    output_spec: Annotated[
        list[str] | None,
        typer.Option(
            "--output-spec", metavar="PATTERN", help="A file to keep: a path, or a pattern such as 'src/**/*.py'"
        ),
    ] = None,
    account: Annotated[
        str | None, typer.Option("--account", metavar="ID", help="Under this account; default: any that is free")
    ] = None,
    session: Annotated[
        str | None,
        typer.Option("--session", metavar="ID", help="Go on with the session of an earlier run of the account"),
    ] = None,
    repo: Annotated[
        str | None,
        typer.Option("--repo", metavar="DIR", help="Work in a copy of this git repository of the worker's machine"),
    ] = None,
    ref: Annotated[
        str | None, typer.Option("--ref", metavar="REF", help="Its branch, tag or commit; default: what HEAD is")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", "--idempotency-key", metavar="KEY", help="The same key and tool is the same task"),
    ] = None,
    priority: Annotated[
        int | None, typer.Option("--priority", metavar="1-9", help="9 is the most urgent; default 5")
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", metavar="DURATION", help="The tool is asked to end after this; default 30m"),
    ] = None,
    kill_after: Annotated[
        str | None, typer.Option("--kill-after", metavar="DURATION", help="and killed this much later; default 10s")
    ] = None,
    no_output_timeout: Annotated[
        str | None,
        typer.Option("--no-output-timeout", metavar="DURATION", help="End it after this long without output"),
    ] = None,
    max_attempts: Annotated[
        int | None, typer.Option("--max-attempts", metavar="N", help="1 to 101; default 3", min=1)
    ] = None,
    delay: Annotated[
        str | None, typer.Option("--delay", metavar="DURATION", help="Start after this time: 90s, 15m")
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option("--deadline", metavar="TIME", help="Fail if not finished by then: a time, or 2h from now"),
    ] = None,
    keep_workspace: Annotated[
        bool, typer.Option("--keep-workspace", help="Leave the workspace on the worker's disk")
    ] = False,
    wait: Annotated[
        str | None, typer.Option("--wait", metavar="[DURATION]", help="Wait until it is finished, and print the result")
    ] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Wait, and print every event (on stderr)")] = False,
) -> None:
    """Start a task: one run of a coding CLI in a workspace of its own. Prints its id; once that is printed, it is never lost."""
    times = {"timeout": timeout, "kill_after": kill_after, "no_output_timeout": no_output_timeout}
    flags: dict[str, Any] = {
        name: duration(text, f"--{name.replace('_', '-')}") for name, text in times.items() if text is not None
    }
    flags |= {
        "tool": tool,
        "prompt": None if prompt is None else inputs.read_text(prompt, "--prompt"),
        "model": model,
        "output_spec": output_spec,
        "account": account,
        "session": session,
        "repo": repo and absolute(repo),
        "ref": ref,
        "keep_workspace": keep_workspace or None,
        "env": task_inputs.environment(env or []) or None,
        "mcp_servers": task_inputs.mcp_servers(mcp or []) or None,
        "priority": priority,
        "max_attempts": max_attempts,
        "idempotency_key": key,
        "delay": None if delay is None else duration(delay, "--delay"),
        "deadline": None if deadline is None else moment(deadline, "--deadline", past=False).isoformat(),
    }
    limit = duration(wait, "--wait") if wait else None
    here = task_inputs.files(file or [])
    new = task_inputs.described(from_file, flags, here)
    if new.tenant is not None:
        cli.use_tenant(new.tenant)
    async with cli.client(creates=True) as client:
        task = await enqueue_task(client, new.task, files=new.files, on_files=lambda: here, **new.options)
        if cli.out.for_people or cli.out.mode is Mode.ID:
            print(task.id, flush=True)
        if not task.created:
            cli.out.note("this key was used before: this is the task that has it")
        if wait is not None or follow:
            await follow_to_end(cli, client, task.id, limit, steps=follow)
        elif cli.out.for_programs:
            job = (await get_task(client, str(task.id))).job
            cli.out.rows([job], [], id=lambda j: j.id) if cli.out.mode is Mode.JSONL else cli.out.json(job)
        elif cli.out.for_people:
            cli.out.note(f"watch it: {cli.next(f'tasks watch {bare(task.id)}')}")
            await _say_without_account(cli, client, new.task)


async def _say_without_account(cli: Cli, client: Client, task: TaskSpec) -> None:
    """A task that no account can run waits for one, however many workers there are."""
    try:
        its = [info.account for info in await list_accounts(client) if info.account.tool == task.tool]
    except PerdureError:  # the task is stored, and a role that only enqueues may not read accounts
        return
    if not its:
        add = cli.next(f"accounts add --id {task.tool}-main --tool {task.tool} --env ...")
        cli.out.note(f"it waits until there is an account of {task.tool}: {add}")
    elif not any(account.enabled for account in its):
        enable = cli.next(f"accounts enable {its[0].id}")
        cli.out.note(f"it waits, as every account of {task.tool} is disabled: {enable}")


def absolute(path: str) -> str:
    """A path as the worker takes it: from the root."""
    return str(Path(path).resolve())
