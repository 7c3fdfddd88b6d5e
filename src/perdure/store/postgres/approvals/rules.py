"""Rules about tools of one tenant."""

from __future__ import annotations

from uuid import UUID

from perdure.model.approval_rules import ApprovalRule, NewRule
from perdure.model.jobs import Page
from perdure.store.errors import ambiguous_id, id_suffix, parse_cursor, rule_not_found
from perdure.store.postgres.engine.codec import CODEC
from perdure.store.postgres.engine.database import Database, Transaction
from perdure.store.rule_rows import rule_of, values_of


async def insert_rule(source: Database | Transaction, tenant_id: str, rule: NewRule) -> None:
    """Store a rule; written again, the first one stays."""
    await source.rows("insert_rule", expires_in=rule.expires_in, **values_of(rule, tenant_id))


async def get_rule(source: Database | Transaction, tenant_id: str, rule_id: UUID) -> ApprovalRule:
    """Raises ApprovalRuleNotFound."""
    row = await source.row("get_rule", rule_id=rule_id, tenant_id=tenant_id)
    if row is None:
        raise rule_not_found(rule_id)
    return rule_of(row, CODEC)


class PostgresRules:
    """The part of `protocol.ApprovalStore` that is about rules."""

    _database: Database
    _tenant_id: str

    async def add_rule(self, rule: NewRule) -> ApprovalRule:
        """See `protocol.ApprovalStore.add_rule`."""

        async def work(tx: Transaction) -> ApprovalRule:
            await insert_rule(tx, self._tenant_id, rule)
            return await get_rule(tx, self._tenant_id, rule.id)

        return await self._database.transact(work)

    async def find_rule(self, text: str) -> UUID:
        """See `protocol.ApprovalStore.find_rule`."""
        suffix = id_suffix(text)
        if isinstance(suffix, UUID):
            return suffix
        rows = await self._database.rows("find_rule", suffix=suffix, tenant_id=self._tenant_id)
        if len(rows) > 1:
            raise ambiguous_id(text)
        if not rows:
            raise rule_not_found(text)
        id: UUID = rows[0]["id"]
        return id

    async def rule_for(self, tool: str, job_id: UUID, user_id: str) -> ApprovalRule | None:
        """See `protocol.ApprovalStore.rule_for`."""
        of = {"tenant_id": self._tenant_id, "job_id": job_id, "user_id": user_id}
        row = await self._database.row("rule_for", tool=tool, **of)
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
        rows = await self._database.rows(
            "list_rules",
            tenant_id=self._tenant_id,
            before=parse_cursor(cursor),
            tool=tool,
            scope=scope,
            only_live=only_live,
            limit=limit + 1,
        )
        items = tuple(rule_of(row, CODEC) for row in rows[:limit])
        return Page(items, str(items[-1].id) if items and len(rows) > limit else None)

    async def revoke_rule(self, rule_id: UUID, *, by: str, via: str, reason: str | None = None) -> ApprovalRule:
        """See `protocol.ApprovalStore.revoke_rule`."""

        async def work(tx: Transaction) -> ApprovalRule:
            await tx.rows("revoke_rule", rule_id=rule_id, tenant_id=self._tenant_id, by=by, via=via, reason=reason)
            return await get_rule(tx, self._tenant_id, rule_id)

        return await self._database.transact(work)
