"""`client.approvals`, blocking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.model.approvals import Approval
from perdure.model.jobs import Page
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
    ) -> Approval:
        """See `Approvals.approve`."""
        return self._background.run(
            self._approvals.approve(
                approval_id, token=token, by=by, comment=comment, edited=edited, expected_digest=expected_digest
            )
        )

    def deny(
        self,
        approval_id: JobId | None = None,
        *,
        token: str | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> Approval:
        """See `Approvals.deny`."""
        return self._background.run(self._approvals.deny(approval_id, token=token, by=by, comment=comment))

    def new_token(self, approval_id: JobId) -> str:
        """See `Approvals.new_token`."""
        return self._background.run(self._approvals.new_token(approval_id))
