"""The budgets of agents and tenants."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.model.budgets import Amounts
from perdure.model.jobs import Lease
from perdure.model.shared_budgets import Hold, Reserved, decide, hold_of, is_nothing, shared_budget_of
from perdure.store.errors import lease_lost
from perdure.store.postgres.engine.database import Transaction
from perdure.store.postgres.engine.locked_job import is_live


async def reserve(
    tx: Transaction, tenant_id: str, lease: Lease, key: str, scopes: Sequence[str], need: Amounts
) -> Reserved:
    """See `protocol.LimitStore.reserve_budget`."""
    claim = await tx.row("lock_claim", job_id=lease.job_id)
    if claim is None or not is_live(claim, lease, tenant_id):
        raise lease_lost(lease)
    place = {"tenant_id": tenant_id, "scopes": list(scopes)}
    rows = await tx.rows("lock_budgets", **place)
    held = await tx.rows("holds_of", **place)
    own = [h for h in held if (h["job_id"], h["key"]) == (lease.job_id, key)]
    if any(h["attempt"] != lease.attempt for h in own):  # an attempt that has ended left them: they count as spent
        of = {**place, "job_id": lease.job_id, "key": key, "attempt": lease.attempt}
        for left in map(hold_of, await tx.rows("dead_holds_of_call", **of)):
            await _spend(tx, tenant_id, left)
        rows, held, own = await tx.rows("lock_budgets", **place), await tx.rows("holds_of", **place), []
    budgets = [shared_budget_of(row, map(hold_of, held)) for row in rows]
    if own:
        return Reserved(None, {}, budgets)  # the answer of the first time was lost
    reserved = decide(budgets, need)
    if reserved.breach is not None or (is_nothing(need) and not reserved.warned):
        return reserved
    for budget in budgets:
        of = {"tenant_id": tenant_id, "scope": budget.scope}
        await tx.rows(
            "add_hold", **of, job_id=lease.job_id, key=key, attempt=lease.attempt, tokens=need.tokens, cost=need.cost
        )
        warned = " ".join((*budget.warned, *reserved.warned.get(budget.scope, ())))
        await tx.rows("count_calls", **of, tool_calls=need.tool_calls, children=need.children, warned=warned)
    return reserved


async def fold(tx: Transaction, tenant_id: str) -> int:
    """See `protocol.LimitStore.fold_budgets`."""
    scopes = [row["scope"] for row in await tx.rows("list_budgets", tenant_id=tenant_id)]
    if not scopes:
        return 0
    await tx.rows("lock_budgets", tenant_id=tenant_id, scopes=scopes)
    dead = await tx.rows("dead_holds", tenant_id=tenant_id)
    for hold in map(hold_of, dead):
        await _spend(tx, tenant_id, hold)
    return len(dead)


async def _spend(tx: Transaction, tenant_id: str, hold: Hold) -> None:
    left = hold.left
    await tx.rows("spend_hold", tenant_id=tenant_id, scope=hold.scope, tokens=left.tokens, cost=left.cost)
