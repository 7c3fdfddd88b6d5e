"""The budgets of agents and tenants."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from perdure.model.budgets import Amounts
from perdure.model.cost import text_of_cost
from perdure.model.jobs import Lease
from perdure.model.shared_budgets import Hold, Reserved, decide, hold_of, is_nothing, shared_budget_of
from perdure.store.errors import lease_lost
from perdure.store.sqlite.engine.statements import SQL
from perdure.store.sqlite.leases.lease_check import held_claim


def reserve(
    conn: sqlite3.Connection, now: int, tenant_id: str, lease: Lease, key: str, scopes: Sequence[str], need: Amounts
) -> Reserved:
    """See `protocol.LimitStore.reserve_budget`."""
    if held_claim(conn, now, tenant_id, lease) is None:
        raise lease_lost(lease)
    job_id = str(lease.job_id)
    place = {"tenant_id": tenant_id, "scopes": json.dumps(list(scopes))}
    rows = conn.execute(SQL["lock_budgets"], place).fetchall()
    held = conn.execute(SQL["holds_of"], place).fetchall()
    own = [h for h in held if (h["job_id"], h["key"]) == (job_id, key)]
    if any(h["attempt"] != lease.attempt for h in own):  # an attempt that has ended left them: they count as spent
        dead = {**place, "job_id": job_id, "key": key, "attempt": lease.attempt}
        for left in map(hold_of, conn.execute(SQL["dead_holds_of_call"], dead).fetchall()):
            _spend(conn, tenant_id, left)
        rows = conn.execute(SQL["lock_budgets"], place).fetchall()
        held, own = conn.execute(SQL["holds_of"], place).fetchall(), []
    budgets = [shared_budget_of(row, map(hold_of, held)) for row in rows]
    if own:
        return Reserved(None, {}, budgets)  # the answer of the first time was lost
    reserved = decide(budgets, need)
    if reserved.breach is not None or (is_nothing(need) and not reserved.warned):
        return reserved
    for budget in budgets:
        of = {"tenant_id": tenant_id, "scope": budget.scope}
        hold = {"job_id": job_id, "key": key, "attempt": lease.attempt, "tokens": need.tokens}
        conn.execute(SQL["add_hold"], {**of, **hold, "cost": text_of_cost(need.cost)})
        warned = " ".join((*budget.warned, *reserved.warned.get(budget.scope, ())))
        counted = {"tool_calls": need.tool_calls, "children": need.children, "warned": warned}
        conn.execute(SQL["count_calls"], {**of, **counted})
    return reserved


def fold(conn: sqlite3.Connection, tenant_id: str) -> int:
    """See `protocol.LimitStore.fold_budgets`."""
    dead = conn.execute(SQL["dead_holds"], {"tenant_id": tenant_id}).fetchall()
    for hold in map(hold_of, dead):
        _spend(conn, tenant_id, hold)
    return len(dead)


def _spend(conn: sqlite3.Connection, tenant_id: str, hold: Hold) -> None:
    left = hold.left
    spent = {"tokens": left.tokens, "cost": text_of_cost(left.cost)}
    conn.execute(SQL["spend_hold"], {"tenant_id": tenant_id, "scope": hold.scope, **spent})
