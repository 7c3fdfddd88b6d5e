"""`perdure approvals rules`, `add-rule`, `revoke-rule`: decisions about tools that hold for later calls."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from rich.text import Text

from perdure.cli.approval_decisions import app
from perdure.cli.context import Cli
from perdure.cli.flags import Paging
from perdure.cli.format import Times, clean_text, duration, short
from perdure.cli.job_options import Reason
from perdure.cli.options import command
from perdure.cli.output import Cell, Column
from perdure.model.approval_rules import ApprovalRule
from perdure.model.jobs import Page
from perdure.operations import approvals as operations

ToolName = Annotated[str, typer.Argument(metavar="TOOL", help="The name that ctx.tool is given")]


class Verdict(StrEnum):
    """What a rule says."""

    ALLOW = "allow"
    DENY = "deny"


def columns(times: Times) -> list[Column[ApprovalRule]]:
    """The columns of `approvals rules`."""
    return [
        Column("verdict", _verdict),
        Column("rule", lambda r: f"{short(r.id)} {r.tool}", least=10),
        Column("scope", lambda r: r.scope, flexible=True, least=10),
        Column("by", lambda r: r.created_by),
        Column("since", lambda r: times.show(r.created_at)),
        Column("expires", lambda r: times.show(r.expires_at)),
        Column("reason", lambda r: r.reason or "", flexible=True),
        Column("revoked", lambda r: times.show(r.revoked_at), wide=True),
        Column("revoked_by", lambda r: r.revoked_by or "", wide=True),
        Column("id", lambda r: str(r.id), wide=True, least=36),
    ]


def _verdict(rule: ApprovalRule) -> Cell:
    if rule.revoked_at is not None:
        return ("○ revoked", "dim")
    return ("● allow", "green") if rule.verdict == "allow" else ("● deny", "red")


@command(app, "rules", example="perdure approvals rules\nperdure approvals rules --tool deploy --ended")
async def rules(
    cli: Cli,
    page: Paging,
    tool: Annotated[str | None, typer.Option("--tool", metavar="TOOL", help="About this tool")] = None,
    scope: Annotated[
        str | None, typer.Option("--scope", metavar="SCOPE", help="Of this scope: tenant, user:NAME, ...")
    ] = None,
    ended: Annotated[bool, typer.Option("--ended", help="Also those that are revoked or expired")] = False,
) -> None:
    """List decisions about tools that hold for later calls, newest first."""
    async with cli.client() as client:

        async def fetch(limit: int, cursor: str | None) -> Page[ApprovalRule]:
            return await operations.list_rules(client, tool=tool, scope=scope, ended=ended, limit=limit, cursor=cursor)

        await cli.list(page, fetch, columns(cli.out.times), id=lambda r: r.id, nothing="no rule about a tool")


@command(
    app,
    "add-rule",
    example="perdure approvals add-rule deploy allow --scope user:ann --for 8h\n"
    "perdure approvals add-rule delete deny --scope tenant --reason 'incident 12'",
)
async def add_rule(
    cli: Cli,
    tool: ToolName,
    verdict: Annotated[Verdict, typer.Argument(metavar="allow|deny", help="What becomes of its calls")],
    scope: Annotated[
        str,
        typer.Option(
            "--scope", metavar="SCOPE", help="tenant, user:NAME, agent:ID, session:AGENT/SESSION or job:ID (in full)"
        ),
    ],
    span: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="For so long; default: until revoked")
    ] = None,
    reason: Reason = None,
) -> None:
    """Let calls of a tool run without asking, or refuse them."""
    expires = None if span is None else duration(span, "--for")
    async with cli.client(creates=True) as client:
        rule = await operations.add_rule(client, tool, verdict.value, scope=scope, expires_in=expires, reason=reason)
    _show(cli, rule)


@command(app, "revoke-rule", example="perdure approvals revoke-rule 9a8b7c6d --reason 'back to asking'")
async def revoke_rule(
    cli: Cli,
    id: Annotated[str, typer.Argument(metavar="ID", help="A rule: its id, or 6 or more of its last hex digits")],
    reason: Reason = None,
) -> None:
    """Let a rule decide no more calls."""
    async with cli.client() as client:
        _show(cli, await operations.revoke_rule(client, id, reason=reason))


def _show(cli: Cli, rule: ApprovalRule) -> None:
    def line() -> Text:
        verb = "allows" if rule.verdict == "allow" else "denies"
        until = f" until {cli.out.times.show(rule.expires_at)}" if rule.expires_at else ""
        ends = f"; revoked by {rule.revoked_by}" if rule.revoked_at else ""
        return Text(clean_text(f"rule {short(rule.id)} {verb} tool {rule.tool} for {rule.scope}{until}{ends}"))

    cli.out.one(rule, line, id=rule.id)
