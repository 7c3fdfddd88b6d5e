"""Rules about tools: rows into records and back, both dialects alike."""

from __future__ import annotations

from typing import Any, cast

from perdure.model.approval_rules import ApprovalRule, NewRule, RuleVerdict
from perdure.store.rows import Codec, Row


def rule_of(row: Row, codec: Codec) -> ApprovalRule:
    """A row of `approval_rules`."""
    return ApprovalRule(
        id=codec.uuid(row["id"]),
        tool=row["tool"],
        scope=row["scope"],
        verdict=cast("RuleVerdict", row["verdict"]),
        created_at=codec.time(row["created_at"]),
        created_by=row["created_by"],
        created_via=row["created_via"],
        reason=row["reason"],
        approval_id=None if row["approval_id"] is None else codec.uuid(row["approval_id"]),
        expires_at=None if row["expires_at"] is None else codec.time(row["expires_at"]),
        revoked_at=None if row["revoked_at"] is None else codec.time(row["revoked_at"]),
        revoked_by=row["revoked_by"],
        revoked_via=row["revoked_via"],
        revoked_reason=row["revoked_reason"],
    )


def values_of(rule: NewRule, tenant_id: str) -> dict[str, Any]:
    """What `insert_rule` takes of a rule, besides its times."""
    return {
        "id": rule.id,
        "tenant_id": tenant_id,
        "tool": rule.tool,
        "scope": rule.scope,
        "verdict": rule.verdict,
        "approval_id": rule.approval_id,
        "by": rule.by,
        "via": rule.via,
        "reason": rule.reason,
    }
