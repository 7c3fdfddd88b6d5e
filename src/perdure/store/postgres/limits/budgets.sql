-- The budgets of agents and tenants.

-- name: set_budget
-- What was spent stays.
insert into perdure.budgets as b (tenant_id, scope, max_tokens, max_cost, max_tool_calls, max_children, on_breach, warn_at, set_by)
values (:tenant_id, :scope, :max_tokens, :max_cost, :max_tool_calls, :max_children, :on_breach, :warn_at, :by)
on conflict (tenant_id, scope) do update set max_tokens = excluded.max_tokens, max_cost = excluded.max_cost,
  max_tool_calls = excluded.max_tool_calls, max_children = excluded.max_children, on_breach = excluded.on_breach,
  warn_at = excluded.warn_at, warned = '', extensions = b.extensions + 1, set_at = perdure.db_now(), set_by = excluded.set_by

-- name: unset_budget
delete from perdure.budgets where tenant_id = :tenant_id and scope = :scope returning scope

-- name: unset_holds
delete from perdure.budget_holds where tenant_id = :tenant_id and scope = :scope

-- name: list_budgets
select * from perdure.budgets where tenant_id = :tenant_id order by scope

-- name: list_holds
select * from perdure.budget_holds where tenant_id = :tenant_id

-- name: lock_budgets
-- Some of a tenant; in the order of all that lock several. A later statement of the same transaction sees what was committed before.
select * from perdure.budgets where tenant_id = :tenant_id and scope = any (:scopes::text[]) order by scope for update

-- name: holds_of
select * from perdure.budget_holds where tenant_id = :tenant_id and scope = any (:scopes::text[])

-- name: add_hold
insert into perdure.budget_holds (tenant_id, scope, job_id, key, attempt, tokens, cost)
values (:tenant_id, :scope, :job_id, :key, :attempt, :tokens, :cost)

-- name: count_calls
update perdure.budgets set tool_calls = tool_calls + :tool_calls, children = children + :children, warned = :warned
where tenant_id = :tenant_id and scope = :scope

-- name: dead_holds
-- Those whose attempt has ended. Its budgets are locked.
delete from perdure.budget_holds h where h.tenant_id = :tenant_id and not exists (
  select from perdure.job_claims k where k.job_id = h.job_id and k.attempt = h.attempt) returning h.*

-- name: dead_holds_of_call
-- Those of a call that an earlier attempt of its job was cut off in. Its budgets are locked.
delete from perdure.budget_holds h where h.tenant_id = :tenant_id and h.job_id = :job_id and h.key = :key
  and h.attempt <> :attempt and h.scope = any (:scopes::text[]) returning h.*

-- name: spend_hold
update perdure.budgets set tokens = tokens + :tokens, cost = cost + :cost where tenant_id = :tenant_id and scope = :scope
