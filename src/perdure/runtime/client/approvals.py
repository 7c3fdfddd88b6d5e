"""`client.approvals`: list approvals, decide them, make new links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal
from uuid import UUID

from perdure.model.approvals import Approval, ApprovalStatus, Decide
from perdure.model.errors import InvalidInput
from perdure.model.ids import hash_token, new_token
from perdure.model.jobs import Page
from perdure.runtime import codec
from perdure.runtime.client.base import ClientPart, JobId
from perdure.runtime.validation import check_text


class Approvals(ClientPart):
    """Approvals: list them, decide them, make new links."""

    async def list(
        self,
        *,
        status: str | Sequence[str] = ("PENDING",),
        job_id: JobId | None = None,
        assignee: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Approval]:
        """Approvals, newest first; by default those that are pending. An empty status means all."""
        words = (status,) if isinstance(status, str) else tuple(status)
        try:
            statuses = tuple(ApprovalStatus(w.upper()) for w in words)
        except ValueError:
            raise InvalidInput(f"unknown approval status; known: {', '.join(ApprovalStatus)}") from None
        job = None if job_id is None else await self._id(job_id)
        return await (await self._store()).approvals.list_approvals(
            statuses=statuses, job_id=job, assignee=assignee, limit=limit, cursor=cursor
        )

    async def get(self, approval_id: JobId) -> Approval:
        """One approval. A job's id names its pending approval, else its latest. Raises ApprovalNotFound, AmbiguousId."""
        return await (await self._store()).approvals.get_approval(await self._approval_id(approval_id))

    async def approve(
        self,
        approval_id: JobId | None = None,
        *,
        token: str | None = None,
        by: str | None = None,
        comment: str | None = None,
        edited: Any = ...,
        expected_digest: str | None = None,
    ) -> Approval:
        """Approve by id (an operator) or by token (from the link); `edited` replaces the payload.

        A question (kind `question`) needs `edited`: {"outcome": "happened", "result": ...} or {"outcome": "retry"}.
        expected_digest: the payload_digest of the approval that was shown; another payload is refused. Raises ApprovalNotFound,
        AmbiguousId, WrongToken, AlreadyDecided, ApprovalExpired, ApprovalChanged, NotAssigned, InvalidInput, NotJson, TooLarge.
        """
        text = None if edited is ... else codec.encode(edited, "the edited payload")
        return await self._decide("approve", approval_id, token, by, comment, text, expected_digest)

    async def deny(
        self,
        approval_id: JobId | None = None,
        *,
        token: str | None = None,
        by: str | None = None,
        comment: str | None = None,
    ) -> Approval:
        """Deny. The job fails, or its handler gets `Denied`, as the approval's on_deny says. Raises as `approve`."""
        return await self._decide("deny", approval_id, token, by, comment, None, None)

    async def new_token(self, approval_id: JobId) -> str:
        """A new token for a pending approval; it is returned only here, and the former one stops working.

        Raises ApprovalNotFound, AmbiguousId, AlreadyDecided, ApprovalExpired.
        """
        token = new_token()
        await (await self._store()).approvals.replace_token(await self._approval_id(approval_id), hash_token(token))
        return token

    async def _decide(
        self,
        verdict: Literal["approve", "deny"],
        approval_id: JobId | None,
        token: str | None,
        by: str | None,
        comment: str | None,
        edited: str | None,
        expected_digest: str | None,
    ) -> Approval:
        if (approval_id is None) == (token is None):
            raise InvalidInput("decide by the approval's id or by its token: give exactly one of them")
        decision = Decide(
            verdict=verdict,
            by=check_text(by, "by", 200) or ("link holder" if token is not None else self._scope.actor),
            via=self._scope.via if token is None else f"{self._scope.via}:link",
            approval_id=None if approval_id is None else await self._approval_id(approval_id),
            token_hash=None if token is None else hash_token(token),
            comment=check_text(comment, "comment", 4000),
            edited_payload=edited,
            expected_digest=expected_digest,
        )
        return await (await self._store()).approvals.decide(decision)

    async def _approval_id(self, approval_id: JobId) -> UUID:
        return await (await self._store()).approvals.find_approval(str(approval_id))
