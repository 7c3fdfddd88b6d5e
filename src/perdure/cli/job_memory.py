"""`perdure jobs messages`, `actions` and `variables`: the working memory of a job."""

from __future__ import annotations

from typing import Any

from perdure.cli.context import Cli
from perdure.cli.format import Times, one_line, span
from perdure.cli.job_options import Id, app
from perdure.cli.job_table import preview
from perdure.cli.options import command
from perdure.cli.output import Cell, Column
from perdure.model.actions import Action
from perdure.model.conversation import ConversationMessage
from perdure.model.cost import text_of_cost
from perdure.operations import jobs

_SUCCESS: dict[bool | None, Cell] = {
    True: ("✓ done", "green"),
    False: ("✕ failed", "red"),
    None: ("? unknown", "yellow"),
}


def message_columns(times: Times) -> list[Column[ConversationMessage]]:
    """The columns of `jobs messages`."""
    return [
        Column("number", lambda m: str(m.sequence), right=True),
        Column("role", lambda m: m.role),
        Column("at", lambda m: times.show(m.at), right=True),
        Column("attempt", lambda m: str(m.attempt or ""), wide=True, right=True),
        Column("step", lambda m: m.step or "", wide=True),
        Column("message", _said, flexible=True),
    ]


def action_columns(times: Times) -> list[Column[Action]]:
    """The columns of `jobs actions`."""
    return [
        Column("number", lambda a: str(a.sequence), right=True),
        Column("outcome", lambda a: _SUCCESS[a.success]),
        Column("tool", lambda a: a.tool, flexible=True),
        Column("key", lambda a: a.key, wide=True),
        Column("at", lambda a: times.show(a.at), right=True),
        Column("attempt", lambda a: str(a.attempt or ""), wide=True, right=True),
        Column("time", lambda a: "" if a.seconds is None else span(a.seconds), right=True),
        Column("cost", lambda a: text_of_cost(a.cost) if a.cost else "", right=True),
        Column("input", lambda a: preview(a.input), flexible=True),
        Column("output", lambda a: (a.error, "red") if a.error else preview(a.sanitised_output), flexible=True),
    ]


@command(app, "messages", example="perdure jobs messages 43149ff1 -o jsonl --fields role,message")
async def messages(cli: Cli, id: Id) -> None:
    """Show a job's conversation: the messages that its handler gave to `ctx.messages.append`."""
    async with cli.client() as client:
        found = await jobs.list_messages(client, id)
    cli.out.rows(found, message_columns(cli.out.times), id=lambda m: m.sequence)
    if not found and cli.out.for_people:
        cli.out.note("it has no conversation")


@command(app, "actions", example="perdure jobs actions 43149ff1\nperdure jobs actions 43149ff1 -o jsonl")
async def actions(cli: Cli, id: Id) -> None:
    """Show what a job did: each call of a tool, with its input (redacted), outcome, time and cost.

    The table shows outputs without what looks like a secret; JSON has them as they are as well.
    """
    async with cli.client() as client:
        found = await jobs.list_actions(client, id)
    cli.out.rows(found, action_columns(cli.out.times), id=lambda a: a.sequence)
    if not found and cli.out.for_people:
        cli.out.note("it has called no tool")


@command(app, "variables", example="perdure jobs variables 43149ff1 -o json")
async def variables(cli: Cli, id: Id) -> None:
    """Show a job's variables: the last values that its handler gave to `ctx.vars.set`."""
    async with cli.client() as client:
        found = await jobs.list_variables(client, id)
    rows = [{"name": name, "value": value} for name, value in found.items()]
    columns: list[Column[dict[str, Any]]] = [
        Column("name", lambda r: r["name"]),
        Column("value", lambda r: preview(r["value"]), flexible=True),
    ]
    cli.out.rows(rows, columns, id=lambda r: r["name"], plain=dict)
    if not rows and cli.out.for_people:
        cli.out.note("it has no variables")


def _said(message: ConversationMessage) -> Cell:
    content = message.message.get("content")
    if isinstance(content, str):
        return one_line(content)
    return preview({k: v for k, v in message.message.items() if k != "role" and v is not None})
