-- Budgets of agents and tenants, which many jobs share.
--
--   budgets        one row for each: its limits, and what was spent
--   budget_holds   what calls that run now have set aside; what a crash has left is counted as spent by the workers
--
-- A job that neither of them is for reads and writes none of these.

create table perdure.budgets (
  tenant_id text not null default 'default',
  scope text not null,
  max_tokens bigint,
  max_cost numeric,
  max_tool_calls bigint,
  max_children bigint,
  on_breach text not null default 'ask',
  warn_at float8 not null default 0.8,
  tokens bigint not null default 0,
  cost numeric not null default 0,
  tool_calls bigint not null default 0,
  children bigint not null default 0,
  warned text not null default '',
  extensions int not null default 0,
  set_at timestamptz not null default perdure.db_now(),
  set_by text not null default session_user,
  primary key (tenant_id, scope),
  constraint budgets_scope check (scope = 'tenant' or scope like 'agent:%'),
  constraint budgets_on_breach check (on_breach in ('ask', 'fail')),
  constraint budgets_spent check (tokens >= 0 and cost >= 0 and tool_calls >= 0 and children >= 0)
);

create table perdure.budget_holds (
  tenant_id text not null,
  scope text not null,
  job_id uuid not null,
  key text not null,
  attempt int not null,
  tokens bigint not null default 0,
  cost numeric not null default 0,
  used_tokens bigint not null default 0,
  used_cost numeric not null default 0,
  primary key (job_id, key, scope)
);
create index budget_holds_scope on perdure.budget_holds (tenant_id, scope);

-- Roles that may write the other tables may write these.
do $$
declare
  r record;
begin
  for r in select case a.grantee when 0 then 'public' else a.grantee::regrole::text end as who,
      string_agg(a.privilege_type, ', ') as rights
    from pg_catalog.pg_class c cross join pg_catalog.aclexplode(c.relacl) a
    where c.oid = 'perdure.job_claims'::regclass and a.grantee <> c.relowner
      and a.privilege_type in ('SELECT', 'INSERT', 'UPDATE', 'DELETE') group by a.grantee loop
    execute format('grant %s on perdure.budgets, perdure.budget_holds to %s', r.rights, r.who);
  end loop;
end $$;

comment on table perdure.budgets is 'Budgets of agents and tenants: limits, and what was spent.';
comment on column perdure.budgets.tenant_id is 'Whose budget it is, or whose agent''s.';
comment on column perdure.budgets.scope is 'tenant, or agent: and the id of an agent.';
comment on column perdure.budgets.max_tokens is 'Tokens at most; null: no limit.';
comment on column perdure.budgets.max_cost is 'Money at most; null: no limit.';
comment on column perdure.budgets.max_tool_calls is 'Calls of tools at most; null: no limit.';
comment on column perdure.budgets.max_children is 'Jobs that are spawned at most; null: no limit.';
comment on column perdure.budgets.on_breach is 'ask a person for more, or fail the job.';
comment on column perdure.budgets.warn_at is 'At this part of a limit there is a warning.';
comment on column perdure.budgets.tokens is 'Tokens spent.';
comment on column perdure.budgets.cost is 'Money spent.';
comment on column perdure.budgets.tool_calls is 'Tools called.';
comment on column perdure.budgets.children is 'Jobs spawned.';
comment on column perdure.budgets.warned is 'What there was a warning of, with blanks.';
comment on column perdure.budgets.extensions is 'How often a person has given more.';
comment on column perdure.budgets.set_at is 'When it was set last.';
comment on column perdure.budgets.set_by is 'Who set it.';
comment on table perdure.budget_holds is 'What running calls have set aside of shared budgets.';
comment on column perdure.budget_holds.tenant_id is 'Whose budget it is.';
comment on column perdure.budget_holds.scope is 'As in budgets.';
comment on column perdure.budget_holds.job_id is 'The job that makes the call.';
comment on column perdure.budget_holds.key is 'Of the call.';
comment on column perdure.budget_holds.attempt is 'In which it is made; when that is over, what is left counts as spent.';
comment on column perdure.budget_holds.tokens is 'Tokens set aside.';
comment on column perdure.budget_holds.cost is 'Money set aside.';
comment on column perdure.budget_holds.used_tokens is 'Tokens that the call has reported.';
comment on column perdure.budget_holds.used_cost is 'Money that it has reported.';
