"""Rules about tools of one tenant."""

from __future__ import annotations

import sqlite3
from typing import cast
from uuid import UUID

from perdure.model.approval_rules import ApprovalRule, NewRule
from perdure.model.jobs import Page
from perdure.store.errors import ambiguous_id, id_suffix, parse_cursor, rule_not_found
from perdure.store.rows import Row
from perdure.store.rule_rows import rule_of, values_of
from perdure.store.sqlite.engine.batch import NOTHING
from perdure.store.sqlite.engine.codec import CODEC, span
from perdure.store.sqlite.engine.engine import Engine
from perdure.store.sqlite.engine.statements import SQL


def insert_rule(conn: sqlite3.Connection, now: int, tenant_id: str, rule: NewRule) -> None:
    """Store a rule; written again, the first one stays."""
    values = values_of(rule, tenant_id)
    values |= {"id": str(rule.id), "approval_id": None if rule.approval_id is None else str(rule.approval_id)}
    expires = None if rule.expires_in is None else now + span(rule.expires_in)
    conn.execute(SQL["insert_rule"], {**values, "now": now, "expires_at": expires})


def get_rule(conn: sqlite3.Connection, tenant_id: str, rule_id: UUID) -> ApprovalRule:
    """Raises ApprovalRuleNotFound."""
    row = conn.execute(SQL["get_rule"], {"rule_id": str(rule_id), "tenant_id": tenant_id}).fetchone()
    if row is None:
        raise rule_not_found(rule_id)
    return rule_of(cast("Row", row), CODEC)


class SqliteRules:
    """The part of `protocol.ApprovalStore` that is about rules."""

    _engine: Engine
    _tenant_id: str

    async def add_rule(self, rule: NewRule) -> ApprovalRule:
        """See `protocol.ApprovalStore.add_rule`."""

        def add(conn: sqlite3.Connection, now: int) -> ApprovalRule:
            insert_rule(conn, now, self._tenant_id, rule)
            return get_rule(conn, self._tenant_id, rule.id)

        return await self._engine.write(add, NOTHING)

    async def find_rule(self, text: str) -> UUID:
        """See `protocol.ApprovalStore.find_rule`."""
        suffix = id_suffix(text)
        if isinstance(suffix, UUID):
            return suffix
        rows = await self._engine.rows("find_rule", suffix=suffix, tenant_id=self._tenant_id)
        if len(rows) > 1:
            raise ambiguous_id(text)
        if not rows:
            raise rule_not_found(text)
        return UUID(rows[0]["id"])

    async def rule_for(self, tool: str, job_id: UUID, user_id: str) -> ApprovalRule | None:
        """See `protocol.ApprovalStore.rule_for`."""
        of = {"tenant_id": self._tenant_id, "job_id": str(job_id), "user_id": user_id}
        row = await self._engine.row("rule_for", tool=tool, **of)
        return None if row is None else rule_of(row, CODEC)

    async def list_rules(
        self,
        *,
        tool: str | None = None,
        scope: str | None = None,
        only_live: bool = True,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[ApprovalRule]:
        """See `protocol.ApprovalStore.list_rules`."""
        before = parse_cursor(cursor)
        rows = await self._engine.rows(
            "list_rules",
            tenant_id=self._tenant_id,
            before=None if before is None else str(before),
            tool=tool,
            scope=scope,
            only_live=only_live,
            limit=limit + 1,
        )
        items = tuple(rule_of(row, CODEC) for row in rows[:limit])
        return Page(items, str(items[-1].id) if items and len(rows) > limit else None)

    async def revoke_rule(self, rule_id: UUID, *, by: str, via: str, reason: str | None = None) -> ApprovalRule:
        """See `protocol.ApprovalStore.revoke_rule`."""

        def revoke(conn: sqlite3.Connection, now: int) -> ApprovalRule:
            values = {"rule_id": str(rule_id), "tenant_id": self._tenant_id, "now": now}
            conn.execute(SQL["revoke_rule"], {**values, "by": by, "via": via, "reason": reason})
            return get_rule(conn, self._tenant_id, rule_id)

        return await self._engine.write(revoke, NOTHING)
