"""`perdure jobs start`."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from perdure.cli import inputs
from perdure.cli.context import Cli
from perdure.cli.format import bare, duration, moment
from perdure.cli.job_options import app
from perdure.cli.options import command
from perdure.cli.output import Mode, as_dict
from perdure.cli.task_inputs import environment
from perdure.cli.usage_error import Usage
from perdure.model.errors import UnknownHandler
from perdure.model.tool_approvals import context_of
from perdure.model.unique import OnConflict, Unique
from perdure.operations.enqueue import enqueue_job
from perdure.operations.jobs import get_job

if TYPE_CHECKING:
    from perdure import Client


class IfTaken(enum.StrEnum):
    """What `jobs start` does where another job has the unique key."""

    RETURN = "return"
    REPLACE = "replace"
    REFUSE = "refuse"


@command(
    app,
    "start",
    example="""\
perdure jobs start research -P topic=coffee -P limit:=3
id=$(perdure jobs start research --input @brief.json -o id)
perdure jobs start greet --input '"world"' --wait=30s --app agents:app""",
)
async def start(
    cli: Cli,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="The handler's name")],
    params: Annotated[
        list[str] | None,
        typer.Option("-P", "--param", metavar="KEY=VALUE", help="A key of the input: k=text, k:=json, k=@file"),
    ] = None,
    input: Annotated[
        str | None, typer.Option("--input", metavar="JSON", help="The whole input: JSON, @file, or - for stdin")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Idempotency key: the same key is the same job")
    ] = None,
    delay: Annotated[
        str | None, typer.Option("--delay", metavar="DURATION", help="Start after this time: 90s, 15m")
    ] = None,
    run_at: Annotated[
        str | None, typer.Option("--run-at", metavar="TIME", help="Start then: 2026-12-24T18:00Z, tomorrow 09:00")
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option("--deadline", metavar="TIME", help="Fail if not finished by then: a time, or 2h from now"),
    ] = None,
    priority: Annotated[
        int | None, typer.Option("--priority", metavar="1-9", help="9 is the most urgent; default 5")
    ] = None,
    queue: Annotated[str | None, typer.Option("--queue", metavar="QUEUE", help="Default: the handler's queue")] = None,
    max_retries: Annotated[
        int | None, typer.Option("--max-retries", metavar="N", help="0 to 100; default 3, or the handler's")
    ] = None,
    goal: Annotated[str | None, typer.Option("--goal", metavar="TEXT", help="A message or title for people")] = None,
    concurrency_key: Annotated[
        str | None,
        typer.Option("--concurrency-key", metavar="KEY", help="Jobs with the same key run at most so many at a time"),
    ] = None,
    max_concurrent: Annotated[
        int | None, typer.Option("--max-concurrent", metavar="N", help="How many; default: the handler's")
    ] = None,
    max_per_minute: Annotated[
        int | None, typer.Option("--max-per-minute", metavar="N", help="How many of the key start in any minute")
    ] = None,
    agent: Annotated[str | None, typer.Option("--agent", metavar="ID", help="Whose job it is")] = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="ID", help="The conversation of that agent; default: its own")
    ] = None,
    tags: Annotated[
        list[str] | None, typer.Option("--tag", metavar="TAG", help="A tag; several with commas or repeated")
    ] = None,
    user_id: Annotated[str | None, typer.Option("--user-id", metavar="ID", help="The user whose job it is")] = None,
    requester_id: Annotated[
        str | None, typer.Option("--requester-id", metavar="ID", help="Who asked for it, if that is another")
    ] = None,
    conversation_id: Annotated[
        str | None, typer.Option("--conversation-id", metavar="UUID", help="The conversation that it belongs to")
    ] = None,
    title: Annotated[str | None, typer.Option("--title", metavar="TEXT", help="Its title; default: the goal")] = None,
    description: Annotated[str | None, typer.Option("--description", metavar="TEXT", help="What it is about")] = None,
    category: Annotated[str | None, typer.Option("--category", metavar="TEXT", help="Its category")] = None,
    metadata: Annotated[
        str | None, typer.Option("--metadata", metavar="JSON", help="A JSON object of your own, or @file")
    ] = None,
    timezone: Annotated[
        str | None, typer.Option("--timezone", metavar="ZONE", help="Of the user: Europe/Berlin; default UTC")
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            metavar="NAME[=VALUE]",
            help="Environment of the coding CLIs that it runs; a secret as NAME=env:VARIABLE of the worker",
        ),
    ] = None,
    budget_tokens: Annotated[
        int | None, typer.Option("--budget-tokens", metavar="N", help="Tokens that it may use at most")
    ] = None,
    budget_cost: Annotated[
        str | None, typer.Option("--budget-cost", metavar="AMOUNT", help="Money that it may use at most: 1.50")
    ] = None,
    budget_tool_calls: Annotated[
        int | None, typer.Option("--budget-tool-calls", metavar="N", help="Tools that it may call at most")
    ] = None,
    budget_time: Annotated[
        str | None, typer.Option("--budget-time", metavar="DURATION", help="How long it may run, waits left out: 2h")
    ] = None,
    budget_children: Annotated[
        int | None, typer.Option("--budget-children", metavar="N", help="Jobs that it may spawn at most")
    ] = None,
    on_breach: Annotated[
        str | None,
        typer.Option(
            "--on-breach", metavar="ask|fail", help="When the budget is used up: ask for more (default), or fail"
        ),
    ] = None,
    approval_context: Annotated[
        str | None,
        typer.Option(
            "--approval-context",
            metavar="JSON",
            help='Which tools need approval: {"tools": {"deploy": "always"}}, or @file',
        ),
    ] = None,
    stuck_after: Annotated[
        str | None,
        typer.Option(
            "--stuck-after", metavar="DURATION", help="Without progress for so long while it runs it is stuck"
        ),
    ] = None,
    repair_attempts: Annotated[
        int | None, typer.Option("--repair-attempts", metavar="N", help="New attempts because it was stuck; default 3")
    ] = None,
    stuck_repeats: Annotated[
        int | None,
        typer.Option(
            "--stuck-repeats", metavar="N", help="So many equal calls of a tool in a row: it is stuck as well"
        ),
    ] = None,
    unique: Annotated[
        str | None, typer.Option("--unique", metavar="KEY", help="At most one active job of KIND has this key")
    ] = None,
    period: Annotated[
        str | None,
        typer.Option("--period", metavar="DURATION", help="With --unique: for so long, instead of while active"),
    ] = None,
    on_conflict: Annotated[
        IfTaken, typer.Option("--on-conflict", metavar="return|replace|refuse", help="With --unique: if it is taken")
    ] = IfTaken.RETURN,
    wait: Annotated[
        str | None, typer.Option("--wait", metavar="[DURATION]", help="Wait until it is finished, and print the result")
    ] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Wait, and print every event (on stderr)")] = False,
    stop_on_approval: Annotated[
        bool, typer.Option("--stop-on-approval", help="With --wait: end with exit code 9 once it asks for an approval")
    ] = False,
    elsewhere: Annotated[
        bool, typer.Option("--elsewhere", help="The handler is not in the App of --app: do not check KIND")
    ] = False,
) -> None:
    """Start a job and print its id. Once the id is printed, the job is never lost.

    With --app the kind and the input are checked against the handler, and its queue, priority and retries apply.
    """
    starts = None if run_at is None else moment(run_at, "--run-at", past=False)
    ends = None if deadline is None else moment(deadline, "--deadline", past=False)
    limit = duration(wait, "--wait") if wait else None
    if stop_on_approval and wait is None and not follow:
        raise Usage("--stop-on-approval goes with --wait or --follow")
    if unique is None and (period is not None or on_conflict is not IfTaken.RETURN):
        raise Usage("--period and --on-conflict go with --unique")
    word: OnConflict = on_conflict.value
    only_one = None if unique is None else Unique(unique, period, word)
    value = inputs.job_input(input, params or [])
    fields = {
        "user_id": user_id,
        "requester_id": requester_id,
        "conversation_id": conversation_id,
        "title": title,
        "description": description,
        "category": category,
        "metadata": None if metadata is None else inputs.read_json(metadata, "--metadata"),
        "timezone": timezone,
        "extra_env": environment(env) if env else None,
    }
    budget = inputs.budget(
        {
            "tokens": budget_tokens,
            "cost": budget_cost,
            "tool_calls": budget_tool_calls,
            "wall_time": budget_time,
            "children": budget_children,
            "on_breach": on_breach,
        }
    )
    stuck = inputs.stuck({"after": stuck_after, "repair_attempts": repair_attempts, "repeats": stuck_repeats})
    cli.loads_app = True  # to check the kind and the input
    async with cli.client(creates=True) as client:
        try:
            job = await enqueue_job(
                client,
                kind,
                value,
                idempotency_key=key,
                delay=delay,
                run_at=starts,
                deadline=ends,
                priority=priority,
                queue=queue,
                max_retries=max_retries,
                goal=goal,
                concurrency_key=concurrency_key,
                max_concurrent=max_concurrent,
                max_per_minute=max_per_minute,
                agent=agent,
                session=session,
                tags=tuple(inputs.names(tags)),
                budget=budget,
                approval_context=None
                if approval_context is None
                else context_of(inputs.read_json(approval_context, "--approval-context")),
                stuck=stuck,
                fields=fields,
                unique=only_one,
                elsewhere=elsewhere,
            )
        except UnknownHandler as error:
            known = ", ".join(sorted(h.name for h in cli.app.registry))
            error.hint = f"{cli.settings['app']} has: {known}. Is it in another App? Add --elsewhere"
            raise
        if cli.out.for_people or cli.out.mode is Mode.ID:
            print(job.id, flush=True)
        if not job.created:
            cli.out.note("this key was used before: this is the job that has it")
        if wait is None and not follow:
            await show_started(cli, client, job.id)
        else:
            await follow_to_end(cli, client, job.id, limit, steps=follow, stop_on_approval=stop_on_approval)


async def show_started(cli: Cli, client: Client, id: UUID) -> None:
    """Print a job that was started, or the command that watches it."""
    if cli.out.for_programs:
        await _print_job(cli, client, id)
    elif cli.out.for_people:
        cli.out.note(f"watch it: {cli.next(f'jobs watch {bare(id)}')}")


async def follow_to_end(
    cli: Cli, client: Client, id: UUID, limit: float | None, *, steps: bool, stop_on_approval: bool = False
) -> None:
    """Print what a started job does, and its result. Raises as `Transcript.run`."""
    from perdure.cli.watch import Transcript

    transcript = Transcript(client, cli, id, steps=steps, stop_on_approval=stop_on_approval)
    try:
        job = await transcript.run(limit)
    finally:
        if cli.out.for_programs:
            await _print_job(cli, client, id)
    if cli.out.for_people:
        from perdure.cli.job_page import pretty

        print(pretty(job.result))


async def _print_job(cli: Cli, client: Client, id: UUID) -> None:
    job = (await get_job(client, str(id))).job
    cli.out.json_line(as_dict(job)) if cli.out.mode is Mode.JSONL else cli.out.json(cli.out.picked(as_dict(job)))
