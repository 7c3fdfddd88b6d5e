-- Rules: decisions about tools that hold for later calls as well. The same table and columns as on PostgreSQL; see there.

create table approval_rules (
  id text primary key,
  tenant_id text not null default 'default',
  tool text not null check (length(tool) between 1 and 200),
  scope text not null,
  verdict text not null,
  approval_id text,
  created_at integer not null,
  created_by text not null default 'sql',
  created_via text,
  reason text,
  expires_at integer,
  revoked_at integer,
  revoked_by text,
  revoked_via text,
  revoked_reason text,
  constraint approval_rules_scope check (scope = 'tenant' or scope glob 'job:?*' or scope glob 'session:?*'
    or scope glob 'agent:?*' or scope glob 'user:?*'),
  constraint approval_rules_verdict check (verdict in ('allow', 'deny')),
  constraint approval_rules_revoked check ((revoked_at is null) = (revoked_by is null))
) strict;
create index approval_rules_tool on approval_rules (tenant_id, tool, scope) where revoked_at is null;
create index approval_rules_tenant on approval_rules (tenant_id, id);
