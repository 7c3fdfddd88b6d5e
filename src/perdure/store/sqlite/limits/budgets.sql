-- The budgets of agents and tenants.

-- name: set_budget
-- What was spent stays.
insert into budgets (tenant_id, scope, max_tokens, max_cost, max_tool_calls, max_children, on_breach, warn_at, set_by, set_at)
values (:tenant_id, :scope, :max_tokens, :max_cost, :max_tool_calls, :max_children, :on_breach, :warn_at, :by, :now)
on conflict (tenant_id, scope) do update set max_tokens = excluded.max_tokens, max_cost = excluded.max_cost,
  max_tool_calls = excluded.max_tool_calls, max_children = excluded.max_children, on_breach = excluded.on_breach,
  warn_at = excluded.warn_at, warned = '', extensions = extensions + 1, set_at = excluded.set_at, set_by = excluded.set_by

-- name: unset_budget
delete from budgets where tenant_id = :tenant_id and scope = :scope returning scope

-- name: unset_holds
delete from budget_holds where tenant_id = :tenant_id and scope = :scope

-- name: list_budgets
select * from budgets where tenant_id = :tenant_id order by scope

-- name: list_holds
select * from budget_holds where tenant_id = :tenant_id

-- name: lock_budgets
-- Some of a tenant. scopes: JSON array
select * from budgets where tenant_id = :tenant_id and scope in (select value from json_each(:scopes)) order by scope

-- name: holds_of
select * from budget_holds where tenant_id = :tenant_id and scope in (select value from json_each(:scopes))

-- name: add_hold
insert into budget_holds (tenant_id, scope, job_id, key, attempt, tokens, cost)
values (:tenant_id, :scope, :job_id, :key, :attempt, :tokens, :cost)

-- name: count_calls
update budgets set tool_calls = tool_calls + :tool_calls, children = children + :children, warned = :warned
where tenant_id = :tenant_id and scope = :scope

-- name: dead_holds
-- Those whose attempt has ended.
delete from budget_holds where tenant_id = :tenant_id and not exists (
  select 1 from job_claims k where k.job_id = budget_holds.job_id and k.attempt = budget_holds.attempt) returning *

-- name: dead_holds_of_call
-- Those of a call that an earlier attempt of its job was cut off in.
delete from budget_holds where tenant_id = :tenant_id and job_id = :job_id and key = :key
  and attempt <> :attempt and scope in (select value from json_each(:scopes)) returning *

-- name: spend_hold
update budgets set tokens = tokens + :tokens, cost = add_cost(cost, :cost) where tenant_id = :tenant_id and scope = :scope
