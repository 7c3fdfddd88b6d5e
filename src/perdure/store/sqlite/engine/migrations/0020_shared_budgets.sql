-- Budgets of agents and tenants. The same tables and columns as on PostgreSQL; see there.

create table budgets (
  tenant_id text not null default 'default',
  scope text not null check (scope = 'tenant' or scope like 'agent:%'),
  max_tokens integer,
  max_cost text,
  max_tool_calls integer,
  max_children integer,
  on_breach text not null default 'ask' check (on_breach in ('ask', 'fail')),
  warn_at real not null default 0.8,
  tokens integer not null default 0,
  cost text not null default '0',
  tool_calls integer not null default 0,
  children integer not null default 0,
  warned text not null default '',
  extensions integer not null default 0,
  set_at integer not null,
  set_by text not null default 'sql',
  primary key (tenant_id, scope)
) strict;

create table budget_holds (
  tenant_id text not null,
  scope text not null,
  job_id text not null,
  key text not null,
  attempt integer not null,
  tokens integer not null default 0,
  cost text not null default '0',
  used_tokens integer not null default 0,
  used_cost text not null default '0',
  primary key (job_id, key, scope)
) strict;
create index budget_holds_scope on budget_holds (tenant_id, scope);
