"""`perdure limits`: how many jobs of a concurrency key may run at a time, and the budgets of agents and of the tenant."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from perdure.cli import inputs
from perdure.cli.context import Cli
from perdure.cli.format import clean_text, short
from perdure.cli.options import command, group
from perdure.cli.output import Column, as_dict
from perdure.cli.usage_error import Usage
from perdure.model.limits import MOST_WAITING, Limit
from perdure.model.shared_budgets import SharedBudget
from perdure.operations.limits import (
    get_limit,
    list_budgets,
    list_limits,
    set_budget,
    set_limit,
    unset_budget,
    unset_limit,
)

app = group(
    "See and set how many jobs of a concurrency key run at a time, and the budgets of agents and of the tenant.",
    "perdure limits ls",
)

Key = Annotated[str, typer.Argument(metavar="KEY", help="The concurrency key, such as customer:7")]


def waiting(limit: Limit) -> str:
    """How many jobs wait for a slot."""
    return f"{MOST_WAITING:,}+" if limit.waiting >= MOST_WAITING else str(limit.waiting)


COLUMNS: list[Column[Limit]] = [
    Column("key", lambda limit: limit.key, flexible=True, least=10),
    Column("in_use", lambda limit: str(limit.in_use), right=True),
    Column("max", lambda limit: "any" if limit.max is None else str(limit.max), right=True),
    Column("waiting", waiting, right=True),
    Column("per_minute", lambda limit: "any" if limit.rate is None else str(limit.rate.per_minute), right=True),
    Column("set_by", lambda limit: "hand" if limit.set_by_hand else "code"),
]


@command(app, "ls", example="perdure limits ls")
async def ls(cli: Cli) -> None:
    """List the concurrency keys in use, and those that were set by hand."""
    async with cli.client() as client:
        found = await list_limits(client)
    cli.out.rows(found, COLUMNS, id=lambda limit: limit.key)
    if not found and cli.out.for_people:
        cli.out.note("no job holds a slot of a concurrency key, and none was set")


@command(app, "get", example="perdure limits get customer:7")
async def get(cli: Cli, key: Key) -> None:
    """Show a concurrency key, and the jobs that hold its slots."""
    async with cli.client() as client:
        show(cli, await get_limit(client, key))


@command(
    app,
    "set",
    example="perdure limits set customer:7 --max 5\nperdure limits set customer:7 --max 0\n"
    "perdure limits set mail --per-minute 30",
)
async def set(
    cli: Cli,
    key: Key,
    most: Annotated[int | None, typer.Option("--max", metavar="N", help="How many at a time; 0: none")] = None,
    per_minute: Annotated[
        int | None, typer.Option("--per-minute", metavar="N", help="How many may start in any minute")
    ] = None,
) -> None:
    """Let at most so many jobs of a key run, or start in a minute, whatever code says. A lower maximum ends no job."""
    if most is None and per_minute is None:
        raise Usage("nothing is to be set", hint="give --max, --per-minute or both")
    async with cli.client(creates=True) as client:
        show(cli, await set_limit(client, key, most, per_minute=per_minute))


@command(app, "unset", example="perdure limits unset customer:7")
async def unset(cli: Cli, key: Key) -> None:
    """Let code say again how many jobs of a key run, and start in a minute."""
    async with cli.client() as client:
        show(cli, await unset_limit(client, key))


def show(cli: Cli, limit: Limit) -> None:
    """Print one key."""

    def line() -> Text:
        most = "any number" if limit.max is None else str(limit.max)
        origin = " (set by hand)" if limit.set_by_hand else ""
        by = f", by {', '.join(short(id) for id in limit.holders)}" if limit.holders else ""
        rate = limit.rate
        starts = "" if rate is None else f"; {rate.started} of {rate.per_minute} started in the last minute"
        text = f"{limit.key}: {limit.in_use} of {most}{origin} in use{by}; {waiting(limit)} waiting{starts}"
        return Text(clean_text(text))

    cli.out.one(limit, line, id=limit.key)


Agent = Annotated[str | None, typer.Option("--agent", metavar="ID", help="Of this agent; default: of the tenant")]

BUDGETS: list[Column[SharedBudget]] = [
    Column("of", lambda budget: budget.name, least=10),
    Column("left", lambda budget: budget.line.partition(": ")[2], flexible=True),
    Column("on_breach", lambda budget: budget.on_breach),
]


@command(app, "budgets", example="perdure limits budgets")
async def budgets(cli: Cli) -> None:
    """List the budgets of agents and of the tenant, with what is left of them."""
    async with cli.client() as client:
        found = await list_budgets(client)
    cli.out.rows(found, BUDGETS, id=lambda budget: budget.scope)
    if not found and cli.out.for_people:
        cli.out.note("neither an agent nor the tenant has a budget")


@command(
    app,
    "set-budget",
    example="perdure limits set-budget --tokens 5000000 --cost 250\nperdure limits set-budget --agent reviewer --cost 10",
)
async def set_shared_budget(
    cli: Cli,
    agent: Agent = None,
    tokens: Annotated[int | None, typer.Option("--tokens", metavar="N", help="Tokens that all jobs may use")] = None,
    cost: Annotated[str | None, typer.Option("--cost", metavar="AMOUNT", help="Money that they may use: 1.50")] = None,
    tool_calls: Annotated[
        int | None, typer.Option("--tool-calls", metavar="N", help="Tools that they may call")
    ] = None,
    children: Annotated[int | None, typer.Option("--children", metavar="N", help="Jobs that they may spawn")] = None,
    on_breach: Annotated[
        str | None, typer.Option("--on-breach", metavar="ask|fail", help="When it is used up: ask for more, or fail")
    ] = None,
    warn_at: Annotated[
        float | None, typer.Option("--warn-at", metavar="PART", help="Warn at this part of it; default 0.8")
    ] = None,
) -> None:
    """Set what all jobs of the tenant, or of an agent, may use together. What was spent stays."""
    given = {"tokens": tokens, "cost": cost, "tool_calls": tool_calls, "children": children, "on_breach": on_breach}
    budget = inputs.budget(given | {"warn_at": warn_at})
    if budget is None:
        raise Usage("nothing is limited", hint="for example: perdure limits set-budget --tokens 100000")
    async with cli.client(creates=True) as client:
        show_budget(cli, await set_budget(client, budget, agent=agent))


@command(app, "unset-budget", example="perdure limits unset-budget --agent reviewer")
async def unset_shared_budget(cli: Cli, agent: Agent = None) -> None:
    """Remove the budget of the tenant, or of an agent, with what was spent of it."""
    async with cli.client() as client:
        removed = await unset_budget(client, agent=agent)
    if cli.out.for_programs:
        cli.out.json({"agent": agent, "removed": removed})
    else:
        cli.out.note("removed" if removed else "there was none")


def show_budget(cli: Cli, budget: SharedBudget) -> None:
    """Print one budget."""
    if cli.out.for_programs:
        cli.out.json(as_dict(budget) | {"left": budget.left})
    else:
        cli.out.one(budget, lambda: Text(clean_text(budget.line)), id=budget.scope)
