"""`perdure agents`: agents, their mailboxes, and messages to them."""

from __future__ import annotations

import shlex
from typing import Annotated, Any

import typer

from perdure.cli import agent_sessions, agent_signals, inputs
from perdure.cli.agent_options import Id, app
from perdure.cli.context import Cli
from perdure.cli.flags import Paging
from perdure.cli.format import Times, clean_text, duration, short
from perdure.cli.options import command
from perdure.cli.output import Cell, Column
from perdure.cli.usage_error import Usage
from perdure.model.agents import AgentInstance
from perdure.model.jobs import Page
from perdure.model.messages import DEFAULT_CHANNEL, Message
from perdure.operations import agents as operations
from perdure.operations.limits import set_budget

__all__ = ["agent_sessions", "agent_signals", "app"]

Kind = Annotated[str | None, typer.Option("--kind", metavar="KIND", help="The handler of its jobs; default: its id")]
Name = Annotated[str | None, typer.Option("--name", metavar="TEXT", help="For people")]
Meta = Annotated[str | None, typer.Option("--meta", metavar="JSON", help="An object: JSON, @file, or - for stdin")]
Queue = Annotated[str | None, typer.Option("--queue", metavar="QUEUE", help="Of its jobs")]
DefaultSession = Annotated[
    str | None, typer.Option("--default-session", metavar="ID", help="Of jobs and messages that name none")
]
Intake = Annotated[
    str | None, typer.Option("--intake", metavar="each|inbox", help="A job for each message, or when it is free")
]
Batch = Annotated[int | None, typer.Option("--batch", metavar="N", help="Messages of one job from the inbox, at most")]
OnBusy = Annotated[
    str | None,
    typer.Option("--on-busy", metavar="WORD", help="While it has a job: enqueue, parallel, reject, interrupt"),
]
MaxParallel = Annotated[int | None, typer.Option("--max-parallel", metavar="N", help="Jobs at a time; default 1")]
MaxRetries = Annotated[int | None, typer.Option("--max-retries", metavar="N", help="Of its jobs; 0 to 100")]
BudgetTokens = Annotated[
    int | None, typer.Option("--budget-tokens", metavar="N", help="Tokens that all its jobs may use together")
]
BudgetCost = Annotated[
    str | None, typer.Option("--budget-cost", metavar="AMOUNT", help="Money that they may use together: 1.50")
]
BudgetToolCalls = Annotated[
    int | None, typer.Option("--budget-tool-calls", metavar="N", help="Tools that they may call together")
]
BudgetChildren = Annotated[
    int | None, typer.Option("--budget-children", metavar="N", help="Jobs that they may spawn together")
]
OnBreach = Annotated[
    str | None,
    typer.Option("--on-breach", metavar="ask|fail", help="When the budget is used up: ask for more, or fail"),
]
Pending = Annotated[bool, typer.Option("--pending", help="Only those that no job has got yet")]

_COLORS = {"running": "green", "waiting": "green", "parked": "yellow", "failed": "red", "idle": "dim"}


def columns() -> list[Column[AgentInstance]]:
    """The columns of `agents ls`."""
    return [
        Column("status", status_cell),
        Column("agent", lambda a: a.id, least=12),
        Column("name", lambda a: a.name or "", flexible=True),
        Column("kind", lambda a: a.kind, flexible=True),
        Column("queue", lambda a: a.queue),
        Column("intake", lambda a: a.intake if a.batch == 1 else f"{a.intake} up to {a.batch}"),
        Column("parallel", lambda a: "any" if a.on_busy == "parallel" else str(a.max_parallel_jobs), right=True),
    ]


def status_cell(agent: AgentInstance) -> Cell:
    """Its status; and whether it is paused."""
    status = str(agent.status)
    return (f"{status}, paused" if agent.paused_at is not None else status), _COLORS.get(status, "")


def message_columns(times: Times) -> list[Column[Message]]:
    """The columns of `agents inbox` and `agents outbox`."""
    return [
        Column("state", lambda m: m.state),
        Column("message", lambda m: short(m.id)),
        Column("from", lambda m: m.from_agent_id or ""),
        Column("to", lambda m: m.to_agent_id or ""),
        Column("channel", lambda m: m.channel),
        Column("due", lambda m: times.show(m.due_at)),
        Column("job", lambda m: "" if m.consumed_by_job_id is None else short(m.consumed_by_job_id)),
        Column("payload", lambda m: clean_text(m.text), flexible=True),
    ]


@command(app, "ls", example="perdure agents ls\nperdure agents ls --status failed")
async def ls(
    cli: Cli,
    page: Paging,
    status: Annotated[
        str | None, typer.Option("--status", metavar="STATUS", help="running, waiting, parked, failed or idle")
    ] = None,
) -> None:
    """List agents by id, with what they do now."""
    async with cli.client() as client:

        async def fetch(limit: int, cursor: str | None) -> Page[AgentInstance]:
            return await operations.list_agents(client, status=status, limit=limit, cursor=cursor)

        nothing = "no agent matches" if status else "no agent yet"
        await cli.list(page, fetch, columns(), id=lambda a: a.id, nothing=nothing)


@command(app, "get", example="perdure agents get reviewer")
async def get(cli: Cli, id: Id) -> None:
    """Show an agent."""
    async with cli.client() as client:
        agent = await operations.get_agent(client, id)
        _show(cli, agent)
    if agent.paused_at is not None:
        number = agent.waiting_messages or 0
        waiting = f"{number:,} {'message waits' if number == 1 else 'messages wait'}"
        command = cli.next(f"agents resume {shlex.quote(id)}")
        cli.out.note(f"paused since {cli.out.times.show(agent.paused_at)}: {waiting}; deliver again: {command}")


@command(
    app,
    "create",
    example='perdure agents create reviewer --name Reviewer --meta \'{"persona": "strict"}\'\n'
    "perdure agents create user-7 --kind assistant --intake inbox --batch 10",
)
async def create(
    cli: Cli,
    id: Id,
    kind: Kind = None,
    name: Name = None,
    meta: Meta = None,
    queue: Queue = None,
    default_session: DefaultSession = None,
    intake: Intake = None,
    batch: Batch = None,
    on_busy: OnBusy = None,
    max_parallel: MaxParallel = None,
    max_retries: MaxRetries = None,
) -> None:
    """Create an agent."""
    fields = _fields(kind, name, meta, queue, default_session, intake, batch, on_busy, max_parallel, max_retries)
    async with cli.client(creates=True) as client:
        _show(cli, await operations.create_agent(client, id, **fields))


@command(app, "set", example="perdure agents set reviewer --max-parallel 4")
async def set(
    cli: Cli,
    id: Id,
    kind: Kind = None,
    name: Name = None,
    meta: Meta = None,
    queue: Queue = None,
    default_session: DefaultSession = None,
    intake: Intake = None,
    batch: Batch = None,
    on_busy: OnBusy = None,
    max_parallel: MaxParallel = None,
    max_retries: MaxRetries = None,
    budget_tokens: BudgetTokens = None,
    budget_cost: BudgetCost = None,
    budget_tool_calls: BudgetToolCalls = None,
    budget_children: BudgetChildren = None,
    on_breach: OnBreach = None,
) -> None:
    """Change an agent: what is given. Jobs that are there keep what they were started with; a budget holds for all."""
    budget = inputs.budget(
        {
            "tokens": budget_tokens,
            "cost": budget_cost,
            "tool_calls": budget_tool_calls,
            "children": budget_children,
            "on_breach": on_breach,
        }
    )
    changes = _fields(kind, name, meta, queue, default_session, intake, batch, on_busy, max_parallel, max_retries)
    if not changes and budget is None:
        raise Usage("nothing is to be changed", hint="for example: perdure agents set ID --max-parallel 4")
    async with cli.client() as client:
        agent = await (operations.set_agent(client, id, **changes) if changes else operations.get_agent(client, id))
        if budget is not None:
            set_to = await set_budget(client, budget, agent=id)
            cli.out.note(set_to.line)
        _show(cli, agent)


@command(
    app,
    "send",
    example="perdure agents send reviewer 'Please look at this'\n"
    "perdure agents send reviewer --input @draft.json --delay 1h --channel drafts",
)
async def send(
    cli: Cli,
    to: Annotated[str, typer.Argument(metavar="ID", help="The agent")],
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="What it says; - for stdin")] = None,
    input: Annotated[
        str | None, typer.Option("--input", metavar="JSON", help="Instead of a text: JSON, @file, or - for stdin")
    ] = None,
    from_: Annotated[str | None, typer.Option("--from", metavar="ID", help="In the name of this agent")] = None,
    channel: Annotated[str, typer.Option("--channel", metavar="TEXT", help="What it is about")] = DEFAULT_CHANNEL,
    session: Annotated[str | None, typer.Option("--session", metavar="ID", help="Of the job that gets it")] = None,
    delay: Annotated[str | None, typer.Option("--delay", metavar="DURATION", help="Deliver it that much later")] = None,
    expires: Annotated[
        str | None, typer.Option("--expires-in", metavar="DURATION", help="Do not deliver it after that time")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Idempotency key: the same key is the same message")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--kind", metavar="KIND", help="Create the agent, with this handler, if it is not there"),
    ] = None,
) -> None:
    """Send a message to an agent and print its id. Once the id is printed, the message is never lost."""
    if (text is None) == (input is None):
        raise Usage("give the TEXT of the message, or --input", hint="perdure agents send reviewer 'Hello'")
    payload: Any = inputs.read_text(text, "TEXT") if text == "-" else text
    if input is not None:
        payload = inputs.read_json(input, "--input")
    wait = 0.0 if delay is None else duration(delay, "--delay")
    limit = None if expires is None else duration(expires, "--expires-in")
    async with cli.client(creates=True) as client:
        sent = await operations.send_message(
            client,
            to,
            payload,
            from_=from_,
            channel=channel,
            session=session,
            delay=wait,
            expires_in=limit,
            idempotency_key=key,
            kind=kind,
        )
    facts = {"id": sent.id, "created": sent.created, "job_id": sent.job_id}
    if cli.out.for_programs:
        cli.out.json(facts)
    else:
        print(sent.id, flush=True)
    if not sent.created:
        cli.out.note("this key was used before: this is the message that has it")
    elif sent.job_id is not None and cli.out.for_people:
        cli.out.note(f"watch its job: {cli.next(f'jobs watch {short(sent.job_id)[-8:]}')}")


@command(app, "inbox", example="perdure agents inbox reviewer --pending")
async def inbox(cli: Cli, page: Paging, id: Id, pending: Pending = False) -> None:
    """List the messages to an agent, newest first. They stay as they are."""
    async with cli.client() as client:

        async def fetch(limit: int, cursor: str | None) -> Page[Message]:
            return await operations.list_inbox(client, id, pending=pending, limit=limit, cursor=cursor)

        await cli.list(page, fetch, message_columns(cli.out.times), id=lambda m: m.id, nothing="no message")


@command(app, "outbox", example="perdure agents outbox reviewer")
async def outbox(cli: Cli, page: Paging, id: Id, pending: Pending = False) -> None:
    """List the messages from an agent, newest first."""
    async with cli.client() as client:

        async def fetch(limit: int, cursor: str | None) -> Page[Message]:
            return await operations.list_outbox(client, id, pending=pending, limit=limit, cursor=cursor)

        await cli.list(page, fetch, message_columns(cli.out.times), id=lambda m: m.id, nothing="no message")


@command(app, "pause", example="perdure agents pause reviewer")
async def pause(cli: Cli, id: Id) -> None:
    """Accept and deliver no messages to an agent until it is resumed. Its jobs go on."""
    async with cli.client() as client:
        _show(cli, await operations.pause_agent(client, id))


@command(app, "resume", example="perdure agents resume reviewer")
async def resume(cli: Cli, id: Id) -> None:
    """Accept and deliver the messages to an agent again."""
    async with cli.client() as client:
        _show(cli, await operations.resume_agent(client, id))


@command(app, "rm", example="perdure agents rm reviewer\nperdure agents rm reviewer --force --yes")
async def rm(
    cli: Cli,
    id: Id,
    force: Annotated[
        bool, typer.Option("--force", help="Also if it has jobs, which are cancelled, or pending messages or signals")
    ] = False,
) -> None:
    """Delete an agent and the states of its sessions, permanently. Its jobs and their logs stay."""
    cancels = ", and cancel its jobs" if force else ""
    cli.confirm(f"Delete agent {id} and the states of its sessions{cancels}?")
    async with cli.client() as client:
        await operations.delete_agent(client, id, force=force)
    cli.out.note(f"deleted {id}")


def _fields(
    kind: str | None,
    name: str | None,
    meta: str | None,
    queue: str | None,
    default_session: str | None,
    intake: str | None,
    batch: int | None,
    on_busy: str | None,
    max_parallel: int | None,
    max_retries: int | None,
) -> dict[str, Any]:
    """The fields of an agent that options give."""
    given = {
        "kind": kind,
        "name": name,
        "meta": None if meta is None else inputs.read_json(meta, "--meta"),
        "queue": queue,
        "default_session_id": default_session,
        "intake": intake,
        "batch": batch,
        "on_busy": on_busy,
        "max_parallel_jobs": max_parallel,
        "max_retries": max_retries,
    }
    return {field: value for field, value in given.items() if value is not None}


def _show(cli: Cli, agent: AgentInstance) -> None:
    cli.out.rows([agent], columns(), id=lambda a: a.id)


ORDER = (
    "ls", "get", "create", "set", "send", "inbox", "outbox", "signal", "signals", "sessions", "session",
    "set-session", "pause", "resume", "rm",
)  # fmt: skip
"""The commands as the help lists them."""

app.registered_commands.sort(key=lambda command: ORDER.index(command.name or ""))
