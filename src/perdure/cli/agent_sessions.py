"""Commands about the state of an agent's sessions: session, sessions, set-session."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from perdure.cli import inputs
from perdure.cli.agent_options import Id, app
from perdure.cli.context import Cli
from perdure.cli.flags import Paging
from perdure.cli.format import Times, clean_text, short
from perdure.cli.options import command
from perdure.cli.output import Column
from perdure.model.agents import SessionState
from perdure.model.jobs import Page
from perdure.operations import agents as operations

Session = Annotated[str | None, typer.Option("--session", metavar="ID", help="Default: that of the jobs without one")]


def session_columns(times: Times) -> list[Column[SessionState]]:
    """The columns of `agents sessions`."""
    return [
        Column("session", lambda s: s.session_id or "", least=8),
        Column("version", lambda s: str(s.version), right=True),
        Column("saved", lambda s: times.show(s.updated_at)),
        Column("job", lambda s: "" if s.job_id is None else short(s.job_id)),
        Column("state", lambda s: clean_text(json.dumps(s.state, ensure_ascii=False)), flexible=True),
    ]


@command(app, "sessions", example="perdure agents sessions tutor")
async def sessions(cli: Cli, page: Paging, id: Id) -> None:
    """List the sessions of an agent for which something was saved."""
    async with cli.client() as client:

        async def fetch(limit: int, cursor: str | None) -> Page[SessionState]:
            return await operations.list_sessions(client, id, limit=limit, cursor=cursor)

        await cli.list(
            page, fetch, session_columns(cli.out.times), id=lambda s: s.session_id or "", nothing="nothing was saved"
        )


@command(app, "session", example="perdure agents session tutor --session pupil-7")
async def session(cli: Cli, id: Id, session: Session = None) -> None:
    """Show what was saved for a session of an agent, which its next job finds."""
    async with cli.client() as client:
        found = await operations.get_session(client, id, session=session)
    cli.out.rows([found], session_columns(cli.out.times), id=lambda s: s.session_id or "")


@command(
    app,
    "set-session",
    example="perdure agents set-session tutor '[\"verbs\"]' --session pupil-7\n"
    "perdure agents set-session tutor @state.json --expected 3",
)
async def set_session(
    cli: Cli,
    id: Id,
    state: Annotated[str, typer.Argument(metavar="STATE", help="JSON, @file, or - for stdin")],
    session: Session = None,
    expected: Annotated[
        int | None,
        typer.Option("--expected", metavar="VERSION", help="Only if it has this version; 0: if nothing was saved"),
    ] = None,
) -> None:
    """Save the state of a session of an agent, for its next job."""
    value = inputs.read_json(state, "STATE")
    async with cli.client() as client:
        saved = await operations.set_session(client, id, value, session=session, expected=expected)
    cli.out.rows([saved], session_columns(cli.out.times), id=lambda s: s.session_id or "")
