-- Rules: decisions about tools that hold for later calls as well.
--
--   approval_rules   a row for each, until it expires or is revoked. A job with an approval context looks there before it asks.

create table perdure.approval_rules (
  id uuid primary key,
  tenant_id text not null default 'default',
  tool text not null check (length(tool) between 1 and 200),
  scope text not null,
  verdict text not null,
  approval_id uuid,
  created_at timestamptz not null default perdure.db_now(),
  created_by text not null default session_user,
  created_via text,
  reason text,
  expires_at timestamptz,
  revoked_at timestamptz,
  revoked_by text,
  revoked_via text,
  revoked_reason text,
  constraint approval_rules_scope check (scope = 'tenant' or scope ~ '^(job|session|agent|user):.'),
  constraint approval_rules_verdict check (verdict in ('allow', 'deny')),
  constraint approval_rules_revoked check ((revoked_at is null) = (revoked_by is null))
);
create index approval_rules_tool on perdure.approval_rules (tenant_id, tool, scope) where revoked_at is null;
create index approval_rules_tenant on perdure.approval_rules (tenant_id, id);

-- Roles that may write the other tables may write this one.
do $$
declare
  r record;
begin
  for r in select case a.grantee when 0 then 'public' else a.grantee::regrole::text end as who,
      string_agg(a.privilege_type, ', ') as rights
    from pg_catalog.pg_class c cross join pg_catalog.aclexplode(c.relacl) a
    where c.oid = 'perdure.job_claims'::regclass and a.grantee <> c.relowner
      and a.privilege_type in ('SELECT', 'INSERT', 'UPDATE', 'DELETE') group by a.grantee loop
    execute format('grant %s on perdure.approval_rules to %s', r.rights, r.who);
  end loop;
end $$;

comment on table perdure.approval_rules is 'Decisions about tools that hold for later calls too.';
comment on column perdure.approval_rules.id is 'UUIDv7.';
comment on column perdure.approval_rules.tenant_id is 'Whose rule it is.';
comment on column perdure.approval_rules.tool is 'The name of the tool.';
comment on column perdure.approval_rules.scope is 'For whose jobs it holds: tenant, user:NAME, agent:ID, session:AGENT/SESSION or job:ID.';
comment on column perdure.approval_rules.verdict is 'allow or deny.';
comment on column perdure.approval_rules.approval_id is 'The approval with whose decision it was made, if it was.';
comment on column perdure.approval_rules.created_at is 'Since when it holds.';
comment on column perdure.approval_rules.created_by is 'Who made it.';
comment on column perdure.approval_rules.created_via is 'Via what: python, cli, ...';
comment on column perdure.approval_rules.reason is 'Why it was made.';
comment on column perdure.approval_rules.expires_at is 'Until when it holds; null: it does not expire.';
comment on column perdure.approval_rules.revoked_at is 'When it was revoked; null: it was not.';
comment on column perdure.approval_rules.revoked_by is 'Who revoked it.';
comment on column perdure.approval_rules.revoked_via is 'Via what it was revoked.';
comment on column perdure.approval_rules.revoked_reason is 'Why it was revoked.';
