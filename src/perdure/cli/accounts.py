"""`perdure accounts`: the accounts of coding CLIs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from perdure.cli.context import Cli
from perdure.cli.errors import Exit
from perdure.cli.format import Times
from perdure.cli.options import command, group
from perdure.cli.output import Cell, Column
from perdure.cli.usage_error import Usage
from perdure.model.task_records import AccountInfo
from perdure.operations import accounts as operations

app = group("Add and control the accounts that coding CLIs run under.", "perdure accounts ls")

Id = Annotated[str, typer.Argument(metavar="ID", help="An account, by its id or group name")]


def columns(times: Times) -> list[Column[AccountInfo]]:
    """The columns of `accounts ls`."""
    return [
        Column("state", lambda a: state_cell(a, times)),
        Column("account", lambda a: a.account.id, least=12),
        Column("tool", lambda a: a.account.tool),
        Column("used", lambda a: f"{a.used}/{a.account.max_concurrency}", right=True),
        Column("group", lambda a: a.account.group_name, flexible=True),
        Column("name", lambda a: a.account.name or "", flexible=True),
        Column("env", lambda a: " ".join(sorted(a.account.env)), flexible=True),
        Column("cred_ref", lambda a: a.account.cred_ref or "", wide=True, flexible=True),
        Column("dangerous", lambda a: "yes" if a.account.dangerous else "", wide=True),
    ]


def state_cell(info: AccountInfo, times: Times) -> Cell:
    """Whether tasks may start under it. A time that has passed is none."""
    if not info.account.enabled:
        return "○ disabled", "dim"
    if info.parked_until is not None and info.parked_until > datetime.now(UTC):
        return f"◔ parked until {times.show(info.parked_until)}", "yellow"
    return "● enabled", "green"


def as_json(info: AccountInfo) -> dict[str, Any]:
    """An account for programs. Its environment holds references, and no secret."""
    account = info.account
    return {
        "id": account.id,
        "tool": account.tool,
        "group_name": account.group_name,
        "name": account.name,
        "env_vars": dict(account.env),
        "cred_ref": account.cred_ref,
        "enabled": account.enabled,
        "max_concurrency": account.max_concurrency,
        "used": info.used,
        "dangerous": account.dangerous,
        "parked_until": info.parked_until,
        "parked_reason": info.parked_reason,
        "created_at": info.created_at,
        "updated_at": info.updated_at,
    }


@command(
    app,
    "add",
    example="""\
perdure accounts add --id codex-main --tool codex --max 4 --env CODEX_API_KEY=env:CODEX_KEY
perdure accounts add --id claude-a --tool claude --max 2 --cred-ref /secrets/claude-a""",
)
async def add(
    cli: Cli,
    id: Annotated[str, typer.Option("--id", metavar="ID", help="Its name in commands")],
    tool: Annotated[str, typer.Option("--tool", metavar="TOOL", help="codex, claude, gemini, or one of the settings")],
    max_concurrency: Annotated[
        int, typer.Option("--max", metavar="N", help="Tasks at once, on all workers together; default 1")
    ] = 1,
    group_name: Annotated[
        str | None, typer.Option("--group-name", metavar="NAME", help="What --accounts takes as well; default: the id")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="TEXT", help="For people")] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME=VALUE", help="Environment of its runs; secrets as env:NAME or file:PATH"),
    ] = None,
    cred_ref: Annotated[
        str | None,
        typer.Option("--cred-ref", metavar="PATH", help="A file or folder put read-only where the tool looks"),
    ] = None,
    dangerous: Annotated[
        bool, typer.Option("--dangerous", help="Permit dangerous flags, in a controlled container")
    ] = False,
) -> None:
    """Store an account. A secret is never stored: say where it is."""
    variables = {}
    for pair in env or []:
        variable, equals, value = pair.partition("=")
        if not equals:
            raise Usage(f"--env {pair}: that is not NAME=VALUE", hint="for example: --env CODEX_API_KEY=env:CODEX_KEY")
        variables[variable] = value
    async with cli.client(creates=True) as client:
        info = await operations.add_account(
            client,
            id,
            tool,
            group_name=group_name,
            name=name,
            env=variables,
            cred_ref=cred_ref,
            max_concurrency=max_concurrency,
            dangerous=dangerous,
        )
    _show(cli, info)
    cli.out.note(f"run its tasks: {cli.next('worker start --accounts auto')}")


@command(app, "ls", example="perdure accounts ls")
async def ls(cli: Cli) -> None:
    """List the accounts, by tool and id."""
    async with cli.client() as client:
        found = await operations.list_accounts(client)
    cli.out.rows(found, columns(cli.out.times), id=lambda a: a.account.id, plain=as_json)
    if not found and cli.out.for_people:
        cli.out.note(f"no account yet; add one: {cli.next('accounts add --id codex-main --tool codex --max 4')}")


@command(app, "get", example="perdure accounts get codex-main")
async def get(cli: Cli, id: Id) -> None:
    """Show an account."""
    async with cli.client() as client:
        _show(cli, await operations.get_account(client, id))


@command(app, "enable", example="perdure accounts enable codex-main")
async def enable(cli: Cli, id: Id) -> None:
    """Let tasks run under an account."""
    async with cli.client() as client:
        _show(cli, await operations.enable_account(client, id))


@command(app, "disable", example="perdure accounts disable codex-main")
async def disable(cli: Cli, id: Id) -> None:
    """Let no more tasks start under an account; those that run go on."""
    async with cli.client() as client:
        _show(cli, await operations.disable_account(client, id))


@command(app, "set-limits", example="perdure accounts set-limits codex-main --max 8")
async def set_limits(
    cli: Cli,
    id: Id,
    max_concurrency: Annotated[int, typer.Option("--max", metavar="N", help="Tasks at once, on all workers together")],
) -> None:
    """Set how many tasks run under an account at once. Those that run go on."""
    async with cli.client() as client:
        _show(cli, await operations.set_account_limits(client, id, max_concurrency=max_concurrency))


@command(app, "test", example="perdure accounts test codex-main")
async def test(cli: Cli, id: Id) -> int:
    """Run the tool of an account once, on this machine, with a short prompt: is it installed, is its credential accepted?"""
    async with cli.client() as client:
        run = await operations.check_account(client, id)
    facts: dict[str, Any] = {
        "class": run.outcome,
        "detail": run.detail,
        "message": run.message,
        "exit_code": run.exit_code,
        "seconds": round(run.seconds, 3),
        "tokens": run.usage.tokens,
        "sandbox": run.sandbox.effective,
        "missing": run.sandbox.missing,
    }
    shown = [_fact(name) for name in facts]
    cli.out.rows([facts], shown, id=lambda f: f["class"], plain=dict)
    return Exit.OK if run.ok else Exit.FAILURE


def _fact(name: str) -> Column[dict[str, Any]]:
    return Column(name, lambda facts: _shown(facts[name]), flexible=name == "message")


def _shown(value: Any) -> str:
    return ", ".join(value) if isinstance(value, tuple) else "" if value is None else str(value)


@command(app, "rm", example="perdure accounts rm codex-main")
async def rm(cli: Cli, id: Id) -> None:
    """Delete an account. The records of its runs stay."""
    cli.confirm(f"Delete account {id}?")
    async with cli.client() as client:
        await operations.remove_account(client, id)
    cli.out.note(f"deleted {id}")


def _show(cli: Cli, info: AccountInfo) -> None:
    cli.out.rows([info], columns(cli.out.times), id=lambda a: a.account.id, plain=as_json)
