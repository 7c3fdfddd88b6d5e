"""`client.approvals`: list approvals, decide them, make new links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal
from uuid import UUID

from perdure.model.approval_rules import ApprovalRule, NewRule, RuleScope, RuleVerdict, rule_scopes
from perdure.model.approvals import Approval, ApprovalStatus, Decide
from perdure.model.errors import InvalidInput
from perdure.model.ids import hash_token, new_token, short_id, uuid7
from perdure.model.job_fields import checked_fields
from perdure.model.jobs import Page
from perdure.model.timing import Duration
from perdure.model.tool_approvals import tool_of
from perdure.runtime import codec
from perdure.runtime.client.base import ClientPart, JobId
from perdure.runtime.rule_checks import check_verdict, parse_rule_scope
from perdure.runtime.validation import check_key, check_limit, check_seconds, check_text, check_word


class Approvals(ClientPart):
    """Approvals: list them, decide them, make new links; rules about tools."""

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
        remember: RuleScope | None = None,
        remember_for: Duration | None = None,
    ) -> Approval:
        """Approve by id (an operator) or by token (from the link); `edited` replaces the payload.

        A question (kind `question`) needs `edited`: {"outcome": "happened", "result": ...} or {"outcome": "retry"}.
        expected_digest: the payload_digest of the approval that was shown; another payload is refused. remember: of the approval
        of a tool, given by id: store a rule that allows it for this scope of the job ("job", "session", "agent", "user",
        "tenant") as well, in the same transaction; remember_for: how long, by default until revoked. Raises ApprovalNotFound,
        AmbiguousId, WrongToken, AlreadyDecided, ApprovalExpired, ApprovalChanged, NotAssigned, InvalidInput, NotJson, TooLarge.
        """
        text = None if edited is ... else codec.encode(edited, "the edited payload")
        rule = await self._remembered("allow", approval_id, by, comment, remember, remember_for)
        return await self._decide("approve", approval_id, token, by, comment, text, expected_digest, rule)

    async def deny(
        self,
        approval_id: JobId | None = None,
        *,
        token: str | None = None,
        by: str | None = None,
        comment: str | None = None,
        remember: RuleScope | None = None,
        remember_for: Duration | None = None,
    ) -> Approval:
        """Deny. The job fails, or its handler gets `Denied`, as the approval's on_deny says. remember, remember_for: as for
        `approve`, a rule that denies the tool. Raises as `approve`."""
        rule = await self._remembered("deny", approval_id, by, comment, remember, remember_for)
        return await self._decide("deny", approval_id, token, by, comment, None, None, rule)

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
        rule: NewRule | None,
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
            rule=rule,
        )
        return await (await self._store()).approvals.decide(decision)

    # -- rules ---------------------------------------------------------------------------------------------------------

    async def rules(
        self,
        *,
        tool: str | None = None,
        scope: str | None = None,
        ended: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[ApprovalRule]:
        """The rules about tools that hold, newest first; ended: also those that are revoked or expired. Raises InvalidInput."""
        where = None if scope is None else parse_rule_scope(scope)
        return await (await self._store()).approvals.list_rules(
            tool=tool, scope=where, only_live=not ended, limit=check_limit(limit), cursor=cursor
        )

    async def add_rule(
        self,
        tool: str,
        verdict: str,
        *,
        scope: str,
        expires_in: Duration | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> ApprovalRule:
        """Let calls of a tool run that a person would be asked about ("allow"), or refuse them ("deny").

        It decides calls of tools that need approval "unless_auto_approved"; one that denies also those that need it "always".
        scope: "tenant", "user:ann", "agent:reviewer", "session:reviewer/s1" or "job:<id>". expires_in: seconds or text; None
        never. Of several that fit a call one that denies comes first. Raises InvalidInput.
        """
        rule = NewRule(
            id=uuid7(),
            tool=check_key(tool, "tool"),
            scope=parse_rule_scope(scope),
            verdict=check_verdict(verdict),
            by=check_text(by, "by", 200) or self._scope.actor,
            via=self._scope.via,
            reason=check_text(reason, "reason", 4000),
            expires_in=None if expires_in is None else check_seconds(expires_in, "expires_in"),
        )
        return await (await self._store()).approvals.add_rule(rule)

    async def revoke_rule(self, rule_id: JobId, reason: str | None = None) -> ApprovalRule:
        """Let a rule decide no more calls. Raises ApprovalRuleNotFound, AmbiguousId, InvalidInput."""
        store = await self._store()
        return await store.approvals.revoke_rule(
            await store.approvals.find_rule(str(rule_id)),
            by=self._scope.actor,
            via=self._scope.via,
            reason=check_text(reason, "reason", 4000),
        )

    async def _remembered(
        self,
        verdict: RuleVerdict,
        approval_id: JobId | None,
        by: str | None,
        comment: str | None,
        remember: RuleScope | None,
        remember_for: Duration | None,
    ) -> NewRule | None:
        """The rule that a decision about a tool makes. Raises InvalidInput."""
        if remember is None:
            if remember_for is not None:
                raise InvalidInput("remember_for goes with remember")
            return None
        check_word(remember, "remember", RuleScope)
        if approval_id is None:
            raise InvalidInput("a rule is made by a decision by id, not by a link's token")
        store = await self._store()
        approval = await store.approvals.get_approval(await self._approval_id(approval_id))
        if tool_of(approval.key) is None:
            raise InvalidInput(f"approval …{approval.short_id} is not about a tool: only such a decision makes a rule")
        job = await store.jobs.get_job(approval.job_id)
        said = await store.jobs.list_events(job.id, limit=1, types=["fields_set"])
        user = checked_fields(said[0].payload["fields"]).user_id if said else None
        scopes = rule_scopes(
            job_id=job.id, agent_id=job.agent_id, session_id=job.session_id, user_id=user or job.tenant_id
        )
        if remember not in scopes:
            raise InvalidInput(f"job …{short_id(job.id)} belongs to no {remember}", hint=f"one of {', '.join(scopes)}")
        return NewRule(
            id=uuid7(),
            tool=approval.payload["tool"],
            scope=scopes[remember],
            verdict=verdict,
            by=check_text(by, "by", 200) or self._scope.actor,
            via=self._scope.via,
            reason=check_text(comment, "comment", 4000),
            expires_in=None if remember_for is None else check_seconds(remember_for, "remember_for"),
            approval_id=approval.id,
        )

    async def _approval_id(self, approval_id: JobId) -> UUID:
        return await (await self._store()).approvals.find_approval(str(approval_id))
