"""`perdure approvals ls`, `get`, `approve`, `deny`, `token`: read and decide approvals."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from perdure.cli import inputs
from perdure.cli.context import Cli
from perdure.cli.flags import Paging
from perdure.cli.format import Times, approve_command, bare, duration, one_line, short
from perdure.cli.options import command, group
from perdure.cli.output import Column, Mode, approval_cell
from perdure.cli.usage_error import Usage
from perdure.model.approvals import Approval, ApprovalStatus
from perdure.model.jobs import Page
from perdure.operations import approvals as operations

app = group("Read and decide approvals.", "perdure approvals ls")


class Scope(StrEnum):
    """For whom a decision about a tool holds as well."""

    JOB = "job"
    SESSION = "session"
    AGENT = "agent"
    USER = "user"
    TENANT = "tenant"


_IDS = typer.Argument(metavar="ID", help="Approvals, or jobs with one pending approval; - reads ids from stdin")
Ids = Annotated[list[str], _IDS]
SomeIds = Annotated[list[str] | None, _IDS]
Comment = Annotated[
    str | None, typer.Option("--comment", "--reason", metavar="TEXT", help="Why; kept with the decision")
]
By = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who decides; default: your login name")]
Token = Annotated[
    str | None,
    typer.Option("--token", metavar="REF", help="Decide by a link's token instead of an id: @file, - or env:NAME"),
]
Remember = Annotated[
    Scope | None,
    typer.Option(
        "--remember",
        metavar="job|session|agent|user|tenant",
        help="Of a tool: decide its later calls alike, for the job or whose it is",
    ),
]
For = Annotated[
    str | None, typer.Option("--for", metavar="DURATION", help="With --remember: for so long; default: until revoked")
]


def columns(times: Times) -> list[Column[Approval]]:
    """The columns of `approvals ls`."""
    return [
        Column("status", approval_cell),
        Column("approval", lambda a: f"{short(a.id)} {a.title}", flexible=True, least=10),
        Column("job", lambda a: f"{short(a.job_id)} {a.job_kind or ''}".rstrip(), flexible=True, least=10),
        Column(times.age_column, lambda a: times.age(a.requested_at), right=True),
        Column("expires", lambda a: times.show(a.expires_at) if a.status is ApprovalStatus.PENDING else "", right=True),
        Column("assignees", lambda a: ", ".join(a.assignees) or "anyone", flexible=True),
        Column("decided_by", lambda a: a.decided_by or "", wide=True),
        Column("comment", lambda a: a.comment or "", wide=True, flexible=True),
        Column("id", lambda a: str(a.id), wide=True, least=36),
    ]


@command(app, "ls", example="perdure approvals ls --mine\nperdure approvals ls --status all --job 43149ff1")
async def ls(
    cli: Cli,
    page: Paging,
    status: Annotated[
        list[str] | None,
        typer.Option("--status", metavar="STATUS", help="pending (default), approved, denied, expired, cancelled, all"),
    ] = None,
    job: Annotated[str | None, typer.Option("--job", metavar="ID", help="Asked by this job")] = None,
    mine: Annotated[bool, typer.Option("--mine", help="Only what you may decide")] = False,
    assignee: Annotated[
        str | None, typer.Option("--assignee", metavar="NAME", help="Only what this person may decide")
    ] = None,
) -> None:
    """List approvals, newest first; by default those that are pending."""
    words = inputs.names(status) or ["pending"]
    wanted = () if "all" in words else tuple(words)
    async with cli.client() as client:

        async def fetch(limit: int, cursor: str | None) -> Page[Approval]:
            return await operations.list_approvals(
                client, status=wanted, job_id=job, assignee=assignee, mine=mine, limit=limit, cursor=cursor
            )

        nothing = "no approval is pending" if words == ["pending"] else "no approval matches"
        shown = await cli.list(page, fetch, columns(cli.out.times), id=lambda a: a.id, nothing=nothing)
    pending = [a for a in shown if a.status is ApprovalStatus.PENDING]
    if pending and cli.out.for_people and not cli.out.fields:
        cli.out.note(f"look:   {cli.next(f'approvals get {pending[0].short_id}')}")
        cli.out.note(f"decide: {cli.next(approve_command(pending[0]))}   (or deny)")


@command(app, "get", example="perdure approvals get 9a8b7c6d")
async def get(cli: Cli, ids: Ids) -> int:
    """Show an approval: what the job asks, and everything that would be approved."""
    from perdure.cli.approval_page import approval_page

    chosen = inputs.ids_given(ids, "an approval")
    together = cli.out.mode is Mode.JSON
    async with cli.client() as client:

        async def show_one(id: str) -> Approval:
            approval = await operations.get_approval(client, id)
            if together:
                return approval
            cli.out.one(approval, lambda: approval_page(approval, cli.out.times), id=approval.id)
            if cli.out.for_people and not cli.out.fields and approval.status is ApprovalStatus.PENDING:
                for words, line in next_commands(approval):
                    cli.out.note(f"{words}{cli.next(line)}")
            return approval

        found, code = await cli.each(chosen, show_one)
    if together:
        cli.out.rows(found, [], id=lambda a: a.id)
    return code


def next_commands(approval: Approval) -> list[tuple[str, str]]:
    """Commands to type next, each with what it does."""
    id = approval.short_id
    if approval.kind == "question":
        return [
            ("it happened:   ", approve_command(approval)),
            ("run it again:  ", f"approvals approve {id} --outcome retry"),
            ("fail the job:  ", f"approvals deny {id} --reason TEXT"),
        ]
    return [
        ("yes:         ", approve_command(approval)),
        ("yes, but:    ", f"approvals approve {id} --edit JSON --comment TEXT"),
        ("no:          ", f"approvals deny {id} --reason TEXT"),
    ]


@command(
    app,
    "approve",
    example="""\
perdure approvals approve 9a8b7c6d --comment 'ok, small diff'
perdure approvals approve 9a8b7c6d --edit @corrected.json
perdure approvals approve 9a8b7c6d --remember user --for 8h
perdure approvals approve 9a8b7c6d --outcome happened --result '{"order": 42}'""",
)
async def approve(
    cli: Cli,
    ids: SomeIds = None,
    comment: Comment = None,
    edit: Annotated[
        str | None,
        typer.Option("--edit", metavar="JSON", help="Approve this instead of what was asked: JSON, @file or -"),
    ] = None,
    outcome: Annotated[
        str | None,
        typer.Option(
            "--outcome",
            metavar="happened|retry",
            help="Answer a question about a side effect",
        ),
    ] = None,
    result: Annotated[
        str | None, typer.Option("--result", metavar="JSON", help="With --outcome happened: what it returned")
    ] = None,
    digest: Annotated[
        str | None,
        typer.Option("--digest", metavar="SHA256", help="Refuse if the payload is no longer the one with this digest"),
    ] = None,
    remember: Remember = None,
    remember_for: For = None,
    by: By = None,
    token: Token = None,
) -> int:
    """Approve, as asked or with an edited payload. The first decision counts."""
    answer: dict[str, Any] = {}
    if outcome is not None:
        if outcome not in ("happened", "retry"):
            raise Usage(f"--outcome is happened or retry, not '{outcome}'")
        if edit is not None:
            raise Usage("--outcome and --edit exclude each other")
        answer["edited"] = {"outcome": outcome}
        if outcome == "happened":
            if result is None:
                raise Usage(
                    "--outcome happened needs what it returned", hint="--result JSON; null if it returns nothing"
                )
            answer["edited"]["result"] = inputs.read_json(result, "--result")
    elif edit is not None:
        answer["edited"] = inputs.read_json(edit, "--edit")
    if result is not None and outcome != "happened":
        raise Usage("--result goes with --outcome happened")
    if digest is not None:
        answer["expected_digest"] = digest
    answer |= _remembered(remember, remember_for)
    return await _decide(cli, "approve", ids or [], token, {"by": by, "comment": comment, **answer})


@command(app, "deny", example="perdure approvals deny 9a8b7c6d --reason 'wrong account'")
async def deny(
    cli: Cli,
    ids: SomeIds = None,
    comment: Comment = None,
    remember: Remember = None,
    remember_for: For = None,
    by: By = None,
    token: Token = None,
) -> int:
    """Deny. The job fails, or continues and learns that it was denied, as it asked for."""
    said = _remembered(remember, remember_for)
    return await _decide(cli, "deny", ids or [], token, {"by": by, "comment": comment, **said})


def _remembered(scope: Scope | None, span: str | None) -> dict[str, Any]:
    if scope is None:
        if span is not None:
            raise Usage("--for goes with --remember")
        return {}
    return {"remember": scope.value, "remember_for": None if span is None else duration(span, "--for")}


@command(app, "token", example="perdure approvals token 9a8b7c6d")
async def token(
    cli: Cli, id: Annotated[str, typer.Argument(metavar="ID", help="An approval, or a job with one pending approval")]
) -> None:
    """Make a new token for the link of a pending approval. It is shown only now; the former one stops working."""
    async with cli.client() as client:
        new = await operations.new_token(client, id)
    if cli.out.for_programs:
        facts = {"approval_id": new.approval_id, "token": new.token}
        cli.out.json(facts) if cli.out.mode is Mode.JSON else cli.out.json_line(facts)
    elif cli.out.mode is not Mode.NONE:
        print(new.token)
    cli.out.note(
        f"this token decides approval {short(new.approval_id)}; it is shown only now, and former tokens no longer work"
    )


async def _decide(cli: Cli, verdict: str, ids: Sequence[str], token: str | None, decision: dict[str, Any]) -> int:
    if token is not None and ids:
        raise Usage("decide by id or by --token, not both")
    secret = None if token is None else read_token(token)
    chosen = [""] if secret is not None else inputs.ids_given(ids, "an approval")
    if len(chosen) > 1 and verdict == "approve":
        cli.confirm(f"Approve {len(chosen)} approvals?")
    async with cli.client() as client:

        async def decide_one(id: str) -> Approval:
            decide = operations.approve if verdict == "approve" else operations.deny
            which: dict[str, Any] = {"approval_id": id} if secret is None else {"token": secret}
            decided: Approval = await decide(client, **which, **decision)
            if cli.out.for_people:
                word = f"{approval_cell(decided)[0]}  {short(decided.id)} {one_line(decided.title)}"
                print(word + (" (edited)" if decided.edited else ""))
            return decided

        done, code = await cli.each(chosen, decide_one)
    if not cli.out.for_people:
        cli.out.rows(done, [], id=lambda a: a.id)
    for decided in done if cli.out.for_people else ():
        cli.out.note(f"watch the job: {cli.next(f'jobs watch {bare(decided.job_id)}')}")
    return code


def read_token(reference: str) -> str:
    """A token by reference: a secret typed on a command line stays in the shell's history. Raises Usage."""
    if reference.startswith("env:"):
        value = os.environ.get(reference[4:], "")
    elif reference == "-" or reference.startswith("@"):
        value = inputs.read_text(reference, "--token")
    else:
        raise Usage("--token takes a reference, not the secret itself", hint="write @file, - for stdin, or env:NAME")
    if not value.strip():
        raise Usage(f"--token {reference}: it is empty")
    return value.strip()
