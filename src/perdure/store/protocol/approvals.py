"""Approvals. Part of `protocol.Store`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from perdure.model.approval_rules import ApprovalRule, NewRule
from perdure.model.approvals import Approval, ApprovalStatus, Decide, NewApproval
from perdure.model.jobs import Lease, Page


class ApprovalStore(Protocol):
    """Approvals and questions to people, and rules about tools."""

    async def request_approval(self, lease: Lease, approval: NewApproval) -> Approval:
        """Store the approval, its wait and its `approval_requested` event, if the lease is live. If the job already has an
        approval of this kind and key, that one is returned and nothing is written. Raises `LeaseLost`."""
        ...

    async def replace_token(self, approval_id: UUID, token_hash: str) -> Approval:
        """Give a PENDING approval another token; the former stops working. Raises `ApprovalNotFound`, `AlreadyDecided`,
        `ApprovalExpired`."""
        ...

    async def get_approval(self, approval_id: UUID) -> Approval:
        """Raises `ApprovalNotFound`."""
        ...

    async def find_approval(self, text: str) -> UUID:
        """As `find_job`, for approvals. A job's id names its one PENDING approval, or if it has none its latest.
        Raises `ApprovalNotFound`, `AmbiguousId`."""
        ...

    async def list_approvals(
        self,
        *,
        statuses: Sequence[ApprovalStatus] = (),
        job_id: UUID | None = None,
        assignee: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Approval]:
        """Approvals that match, newest first. `assignee`: only those that this person may decide, which are those without
        assignees and those that name this one."""
        ...

    async def decide(self, decision: Decide) -> Approval:
        """Decide once, by database time; the first commit wins.

        - By id: ApprovalNotFound. By token: `WrongToken` if no approval has (or had, before a decision) that token.
        - Decided before: `AlreadyDecided`, also for a used token. Past expires_at: `ApprovalExpired`.
        - Approving a `question` takes an edited payload that is an object whose `outcome` is `happened` or `retry`:
          otherwise `InvalidInput`.
        - expected_digest given and different: `ApprovalChanged`. By id, with assignees that do not name `by`: `NotAssigned`.
        - Writes status, who, when, why, via what and the edited payload, and an `approval_decided` event; it never holds
          a token.
        - Denied with on_deny `fail` on a job suspended without a lease: FAILED (`denied`) in the same transaction. A job
          suspended on it otherwise gets a queue row that is due now and shows as WAITING_FOR_APPROVAL until claimed.
        - A rule that the decision makes is stored in the same transaction.
        """
        ...

    async def add_rule(self, rule: NewRule) -> ApprovalRule:
        """Store a rule about a tool. One with this id stays as it is."""
        ...

    async def find_rule(self, text: str) -> UUID:
        """The id of a rule from itself, or from its last 6 or more hex digits. Raises `ApprovalRuleNotFound`, `AmbiguousId`."""
        ...

    async def rule_for(self, tool: str, job_id: UUID, user_id: str) -> ApprovalRule | None:
        """The rule that decides a call of this tool by this job of this user: of those that are neither revoked nor expired one
        that denies, else the newest. None if there is none."""
        ...

    async def list_rules(
        self,
        *,
        tool: str | None = None,
        scope: str | None = None,
        only_live: bool = True,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[ApprovalRule]:
        """Rules, newest first. only_live: without those that are revoked or expired."""
        ...

    async def revoke_rule(self, rule_id: UUID, *, by: str, via: str, reason: str | None = None) -> ApprovalRule:
        """From now on it decides no call. One that is revoked already stays as it is. Raises `ApprovalRuleNotFound`."""
        ...
