-- Signals to agents. The same table, columns and view as on PostgreSQL; see there. What is a function there are statements of
-- signals/agent_signals.sql.

create table agent_signals (
  id text primary key not null,
  tenant_id text not null default 'default',
  agent_id text not null,
  key text not null check (length(key) between 1 and 200),
  payload text not null check (json_valid(payload)),
  caller_id text check (caller_id is null or length(caller_id) between 1 and 200),
  actor text not null,
  via text not null,
  created_at integer not null,
  expires_at integer,
  consumed_by_job_id text,
  consumed_at integer,
  constraint agent_signals_consumed check ((consumed_by_job_id is null) = (consumed_at is null))
) strict;
create unique index agent_signals_caller on agent_signals (tenant_id, agent_id, caller_id) where caller_id is not null;
create index agent_signals_agent on agent_signals (tenant_id, agent_id, id);
create index agent_signals_pending on agent_signals (tenant_id, agent_id, created_at, id) where consumed_by_job_id is null;

create view agent_pending_signals as
  select id, agent_id, key as correlation_key, payload, created_at, consumed_by_job_id, tenant_id
  from agent_signals
  where consumed_by_job_id is not null or expires_at is null or expires_at > (select now from clock);
