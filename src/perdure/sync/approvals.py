"""`client.approvals`, blocking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.model.approval_rules import ApprovalRule, RuleScope
from perdure.model.approvals import Approval
from perdure.model.jobs import Page
from perdure.model.timing import Duration
from perdure.runtime.background import BackgroundLoop
from perdure.runtime.client.approvals import Approvals as AsyncApprovals
from perdure.runtime.client.base import JobId


class Approvals:
    """See `perdure.Client.approvals`; each call does what the one of the same name does there."""

    def __init__(self, approvals: AsyncApprovals, background: BackgroundLoop) -> None:
        self._approvals = approvals
        self._background = background

    def list(
        self,
        *,
        status: str | Sequence[str] = ("PENDING",),
        job_id: JobId | None = None,
        assignee: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Approval]:
        """See `Approvals.list`."""
        return self._background.run(
            self._approvals.list(status=status, job_id=job_id, assignee=assignee, limit=limit, cursor=cursor)
        )

    def get(self, approval_id: JobId) -> Approval:
        """See `Approvals.get`."""
        return self._background.run(self._approvals.get(approval_id))

    def approve(
        self,
        approval_id: JobId | None = None,
        *,
        token: str | None = None,
        by: str | None = None,
        comment: str | None = None,
        edited: Any = ...,
        expected_digest: str | None = None,
        remember: RuleScope | None = None,
        remember_for: Duration | None = None,
    ) -> Approval:
        """See `Approvals.approve`."""
        return self._background.run(
            self._approvals.approve(
                approval_id,
                token=token,
                by=by,
                comment=comment,
                edited=edited,
                expected_digest=expected_digest,
                remember=remember,
                remember_for=remember_for,
            )
        )

    def deny(
        self,
        approval_id: JobId | None = None,
        *,
        token: str | None = None,
        by: str | None = None,
        comment: str | None = None,
        remember: RuleScope | None = None,
        remember_for: Duration | None = None,
    ) -> Approval:
        """See `Approvals.deny`."""
        return self._background.run(
            self._approvals.deny(
                approval_id, token=token, by=by, comment=comment, remember=remember, remember_for=remember_for
            )
        )

    def new_token(self, approval_id: JobId) -> str:
        """See `Approvals.new_token`."""
        return self._background.run(self._approvals.new_token(approval_id))

    def rules(
        self,
        *,
        tool: str | None = None,
        scope: str | None = None,
        ended: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[ApprovalRule]:
        """See `Approvals.rules`."""
        return self._background.run(
            self._approvals.rules(tool=tool, scope=scope, ended=ended, limit=limit, cursor=cursor)
        )

    def add_rule(
        self,
        tool: str,
        verdict: str,
        *,
        scope: str,
        expires_in: Duration | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> ApprovalRule:
        """See `Approvals.add_rule`."""
        return self._background.run(
            self._approvals.add_rule(tool, verdict, scope=scope, expires_in=expires_in, by=by, reason=reason)
        )

    def revoke_rule(self, rule_id: JobId, reason: str | None = None) -> ApprovalRule:
        """See `Approvals.revoke_rule`."""
        return self._background.run(self._approvals.revoke_rule(rule_id, reason))
