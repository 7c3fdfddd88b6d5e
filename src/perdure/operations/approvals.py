"""Reading and deciding approvals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from perdure.model.approval_rules import ApprovalRule, RuleScope
from perdure.model.approvals import Approval
from perdure.model.errors import (
    AlreadyDecided,
    AmbiguousId,
    ApprovalChanged,
    ApprovalExpired,
    ApprovalNotFound,
    ApprovalRuleNotFound,
    InvalidInput,
    JobNotFound,
    NotAssigned,
    WrongToken,
)
from perdure.model.jobs import Page
from perdure.model.timing import Duration
from perdure.operations.registry import UNSET, Role, Unset, operation

if TYPE_CHECKING:
    from perdure import Client

NO_SUCH_APPROVAL = (ApprovalNotFound, AmbiguousId)
NOT_DECIDED = (*NO_SUCH_APPROVAL, WrongToken, AlreadyDecided, ApprovalExpired, NotAssigned, InvalidInput)


@dataclass(frozen=True, slots=True)
class NewToken:
    """The token of a link: it decides this approval, and is shown this once."""

    approval_id: UUID
    token: str


@operation("approvals.list", role=Role.VIEWER, errors=(InvalidInput, JobNotFound, AmbiguousId))
async def list_approvals(
    client: Client,
    *,
    status: tuple[str, ...] = ("PENDING",),
    job_id: str | None = None,
    assignee: str | None = None,
    mine: bool = False,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[Approval]:
    """Approvals, newest first; by default those that are pending. An empty status means all.

    assignee: only what this person may decide. mine: only what the caller may decide, where no assignee is given.
    """
    person = assignee or (client.actor if mine else None)
    return await client.approvals.list(status=status, job_id=job_id, assignee=person, limit=limit, cursor=cursor)


@operation("approvals.get", role=Role.VIEWER, errors=NO_SUCH_APPROVAL)
async def get_approval(client: Client, approval_id: str) -> Approval:
    """One approval; a job's id means its pending approval, else its latest."""
    return await client.approvals.get(approval_id)


@operation("approvals.approve", role=Role.APPROVER, errors=(*NOT_DECIDED, ApprovalChanged))
async def approve(
    client: Client,
    approval_id: str | None = None,
    *,
    token: str | None = None,
    by: str | None = None,
    comment: str | None = None,
    edited: Any | Unset = UNSET,
    expected_digest: str | None = None,
    remember: RuleScope | None = None,
    remember_for: Duration | None = None,
) -> Approval:
    """Approve by id or by the token of a link, as asked or with an `edited` payload. The first decision counts.

    by: who decides; default: the caller. edited: of an approval of kind `question` the answer,
    {"outcome": "happened", "result": ...} or {"outcome": "retry"}. expected_digest: refuse if the payload is another one.
    remember: of a tool, allow it for this scope of the job from now on: job, session, agent, user or tenant. remember_for: how
    long.
    """
    payload = ... if edited is UNSET else edited
    return await client.approve(
        approval_id,
        token=token,
        by=by,
        comment=comment,
        edited=payload,
        expected_digest=expected_digest,
        remember=remember,
        remember_for=remember_for,
    )


@operation("approvals.deny", role=Role.APPROVER, errors=NOT_DECIDED)
async def deny(
    client: Client,
    approval_id: str | None = None,
    *,
    token: str | None = None,
    by: str | None = None,
    comment: str | None = None,
    remember: RuleScope | None = None,
    remember_for: Duration | None = None,
) -> Approval:
    """Deny by id or by the token of a link. The job fails, or continues with the denial, as it asked for.

    remember, remember_for: as of `approvals.approve`, deny the tool from now on.
    """
    return await client.deny(
        approval_id, token=token, by=by, comment=comment, remember=remember, remember_for=remember_for
    )


@operation("approvals.new_token", role=Role.APPROVER, errors=(*NO_SUCH_APPROVAL, AlreadyDecided, ApprovalExpired))
async def new_token(client: Client, approval_id: str) -> NewToken:
    """A new token for the link of a pending approval; the former one stops working."""
    approval = await client.approvals.get(approval_id)
    return NewToken(approval.id, await client.approvals.new_token(approval.id))


@operation("approvals.rules", role=Role.VIEWER, errors=(InvalidInput,))
async def list_rules(
    client: Client,
    *,
    tool: str | None = None,
    scope: str | None = None,
    ended: bool = False,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[ApprovalRule]:
    """The rules about tools that hold, newest first. ended: also those that are revoked or expired."""
    return await client.approvals.rules(tool=tool, scope=scope, ended=ended, limit=limit, cursor=cursor)


@operation("approvals.add_rule", role=Role.APPROVER, errors=(InvalidInput,))
async def add_rule(
    client: Client,
    tool: str,
    verdict: str,
    *,
    scope: str,
    expires_in: Duration | None = None,
    by: str | None = None,
    reason: str | None = None,
) -> ApprovalRule:
    """Let calls of a tool run that a person would be asked about, or refuse them. verdict: allow or deny.

    scope: tenant, user:NAME, agent:ID, session:AGENT/SESSION or job:ID. expires_in: None never.
    """
    return await client.approvals.add_rule(tool, verdict, scope=scope, expires_in=expires_in, by=by, reason=reason)


@operation("approvals.revoke_rule", role=Role.APPROVER, errors=(ApprovalRuleNotFound, AmbiguousId, InvalidInput))
async def revoke_rule(client: Client, rule_id: str, *, reason: str | None = None) -> ApprovalRule:
    """Let a rule about a tool decide no more calls."""
    return await client.approvals.revoke_rule(rule_id, reason)
