"""Commands about the signals to agents: signal, signals."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from perdure.cli import inputs
from perdure.cli.agent_options import Id, app
from perdure.cli.context import Cli
from perdure.cli.flags import Paging
from perdure.cli.format import Times, clean_text, duration, short
from perdure.cli.options import command
from perdure.cli.output import Column
from perdure.model.jobs import Page
from perdure.model.signals import AgentSignal
from perdure.operations import agents as operations


def signal_columns(times: Times) -> list[Column[AgentSignal]]:
    """The columns of `agents signals`."""
    return [
        Column("state", lambda s: s.state),
        Column("signal", lambda s: short(s.id)),
        Column("key", lambda s: s.key, flexible=True),
        Column("sent", lambda s: times.show(s.created_at)),
        Column("expires", lambda s: "" if s.expires_at is None else times.show(s.expires_at)),
        Column("job", lambda s: "" if s.consumed_by_job_id is None else short(s.consumed_by_job_id)),
        Column("payload", lambda s: clean_text(json.dumps(s.payload, ensure_ascii=False)), flexible=True),
    ]


@command(
    app,
    "signal",
    example='perdure agents signal reviewer approved \'{"by": "ann"}\' --id form-4711\n'
    "perdure agents signal reviewer stop --expires-in 1h",
)
async def signal(
    cli: Cli,
    id: Id,
    key: Annotated[str, typer.Argument(metavar="KEY", help="What a job of the agent waits for")],
    payload: Annotated[
        str | None, typer.Argument(metavar="PAYLOAD", help="JSON, @file, or - for stdin; without it null")
    ] = None,
    signal_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Sent again with the same id, it is the same signal")
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires-in", metavar="DURATION", help="Give it to no job after that time")
    ] = None,
) -> None:
    """Send a signal to an agent. One job of it gets it: one that waits for this key, else the next that begins."""
    value = None if payload is None else inputs.read_json(payload, "PAYLOAD")
    limit = None if expires is None else duration(expires, "--expires-in")
    async with cli.client(creates=True) as client:
        sent = await operations.signal_agent(client, id, key, value, id=signal_id, expires_in=limit)
    cli.out.rows([sent], signal_columns(cli.out.times), id=lambda s: s.id)


@command(app, "signals", example="perdure agents signals reviewer --pending")
async def signals(
    cli: Cli,
    page: Paging,
    id: Id,
    pending: Annotated[bool, typer.Option("--pending", help="Only those that no job has got yet")] = False,
) -> None:
    """List the signals to an agent, newest first. They stay as they are."""
    async with cli.client() as client:

        async def fetch(limit: int, cursor: str | None) -> Page[AgentSignal]:
            return await operations.list_agent_signals(client, id, pending=pending, limit=limit, cursor=cursor)

        await cli.list(page, fetch, signal_columns(cli.out.times), id=lambda s: s.id, nothing="no signal")
