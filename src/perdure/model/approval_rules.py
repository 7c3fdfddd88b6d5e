"""Rules: a decision about a tool that holds for later calls as well, until it expires or is revoked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias
from uuid import UUID

from perdure.model.ids import short_id

RuleVerdict: TypeAlias = Literal["allow", "deny"]
"""What a rule says of the calls of its tool."""
RuleScope: TypeAlias = Literal["job", "session", "agent", "user", "tenant"]
"""For whose jobs it holds: one job, a session of an agent, an agent, a user, all of the tenant."""


@dataclass(frozen=True, slots=True)
class NewRule:
    """A rule to be stored. expires_in: seconds from database time; None never expires."""

    id: UUID
    tool: str
    scope: str
    verdict: RuleVerdict
    by: str
    via: str
    reason: str | None = None
    expires_in: float | None = None
    approval_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class ApprovalRule:
    """A decision that holds for later calls of a tool too.

    scope: `tenant`, `user:ann`, `agent:reviewer`, `session:reviewer/s1` or `job:<id>`. created_by, created_via, reason: who made
    it, via what, and why. approval_id: the approval with whose decision it was made, if it was. expires_at: None never expires.
    revoked_at: since when it holds no more. Times are UTC.
    """

    id: UUID
    tool: str
    scope: str
    verdict: RuleVerdict
    created_at: datetime
    created_by: str
    created_via: str | None = None
    reason: str | None = None
    approval_id: UUID | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    revoked_by: str | None = None
    revoked_via: str | None = None
    revoked_reason: str | None = None

    @property
    def short_id(self) -> str:
        """The last 8 hex digits of the id."""
        return short_id(self.id)


def rule_scopes(*, job_id: UUID, agent_id: str | None, session_id: str | None, user_id: str) -> dict[RuleScope, str]:
    """The scopes that a job is in, as they are stored."""
    scopes: dict[RuleScope, str] = {"job": f"job:{job_id}", "user": f"user:{user_id}", "tenant": "tenant"}
    if agent_id is not None:
        scopes["agent"] = f"agent:{agent_id}"
        if session_id is not None:
            scopes["session"] = f"session:{agent_id}/{session_id}"
    return scopes
