-- Signals: what is sent to a running or waiting job under a key. The same table, columns and indexes as on PostgreSQL; see there.

create table signals (
  id text primary key not null,
  tenant_id text not null default 'default',
  job_id text not null,
  key text not null,
  payload text not null check (json_valid(payload)),
  caller_id text,
  actor text not null,
  via text not null,
  created_at integer not null,
  consumed_by_job_id text,
  consumed_at integer,
  wait_key text,
  refused text,
  constraint signals_key check (length(key) between 1 and 200),
  constraint signals_caller_id check (caller_id is null or length(caller_id) between 1 and 200),
  constraint signals_consumed check ((consumed_by_job_id is null) = (consumed_at is null)),
  constraint signals_wait_key check (wait_key is null or consumed_at is not null),
  constraint signals_refused check (refused is null or (consumed_at is not null and wait_key is null))
) strict;
create unique index signals_job on signals (job_id, caller_id);
create index signals_pending on signals (job_id, key, created_at, id) where consumed_at is null;
create unique index signals_bound on signals (consumed_by_job_id, wait_key) where wait_key is not null;
