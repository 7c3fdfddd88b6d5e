-- Coding CLIs: the accounts they run under, the files of jobs, and what came of each run. See the twin for what each table is.

create table accounts (
  id text not null,
  tenant_id text not null default 'default',
  tool text not null,
  group_name text not null,
  name text,
  env_vars text not null default '{}' check (json_valid(env_vars)),
  cred_ref text,
  enabled integer not null default 1,
  max_concurrency integer not null,
  dangerous integer not null default 0,
  parked_until integer,
  parked_reason text,
  failed_probes integer not null default 0,
  created_at integer not null,
  updated_at integer not null,
  primary key (tenant_id, id),
  constraint accounts_max_concurrency check (max_concurrency between 0 and 10000)
);
create unique index accounts_group_name on accounts (tenant_id, group_name);

-- The slot that a run takes of its account is its lease: no counter that a crash could leave behind.
alter table job_claims add column account_id text;
create index job_claims_account on job_claims (tenant_id, account_id) where account_id is not null;
create view concurrency_limits as
  select 'account:' || a.id as scope, a.max_concurrency as max_concurrent, (select count(*) from job_claims k
    where k.tenant_id = a.tenant_id and k.account_id = a.id and k.expires_at > (select now from clock)) as current_concurrent,
    a.tenant_id
  from accounts a;

create table file_contents (
  tenant_id text not null,
  hash text not null,
  size_bytes integer not null,
  content blob,
  created_at integer not null,
  primary key (tenant_id, hash)
);

create table job_files (
  id text primary key not null,
  tenant_id text not null,
  job_id text not null,
  attempt integer not null,
  is_input integer not null,
  path text not null,
  hash text not null,
  size_bytes integer not null,
  created_at integer not null,
  unique (job_id, is_input, attempt, path)
);
create index job_files_hash on job_files (tenant_id, hash);

-- A job made from another one (rerun, fork) has the same inputs.
create trigger jobs_copy_inputs after insert on jobs when new.origin_id is not null begin
  insert into job_files (id, tenant_id, job_id, attempt, is_input, path, hash, size_bytes, created_at)
    select lower(hex(randomblob(4))) || '-' || lower(hex(randomblob(2))) || '-4' || substr(lower(hex(randomblob(2))), 2) || '-8' ||
      substr(lower(hex(randomblob(2))), 2) || '-' || lower(hex(randomblob(6))),
      tenant_id, new.id, attempt, 1, path, hash, size_bytes, created_at from job_files
    where job_id = new.origin_id and is_input and tenant_id = new.tenant_id;
end;

create table tool_runs (
  id text not null,
  job_id text not null,
  attempt integer not null,
  tenant_id text not null,
  tool text not null,
  account_id text,
  worker_id text not null,
  started_at integer not null,
  finished_at integer not null,
  exit_code integer,
  class text not null,
  detail text not null,
  message text not null,
  stdout text not null,
  stderr text not null,
  output_files text not null default '[]' check (json_valid(output_files)),
  tokens_in integer not null default 0,
  tokens_out integer not null default 0,
  tokens_cached integer not null default 0,
  cost text,
  latency_ms integer not null,
  session_id text,
  final_text text not null,
  sandbox text not null default '{}' check (json_valid(sandbox)),
  primary key (job_id, attempt)
);

create table tool_output (
  job_id text not null,
  attempt integer not null,
  seq integer not null,
  stream text not null check (stream in ('stdout', 'stderr')),
  content blob not null,
  created_at integer not null,
  primary key (job_id, attempt, seq)
) without rowid;

create view tasks as
  select j.id, j.tenant_id, substr(j.kind, 5) as tool, j.payload ->> '$.model' as model,
    case
      when j.status in ('PENDING', 'RETRY', 'PARKED', 'WAITING_FOR_APPROVAL') then 'queued'
      when j.status = 'RUNNING' and not coalesce(k.started, 0) then 'leased'
      when j.status in ('RUNNING', 'WAITING') then 'running'
      when j.status = 'COMPLETED' then 'succeeded'
      when j.status = 'FAILED' then 'failed'
      when j.status = 'CANCELLED' then 'canceled'
      else 'deadletter'
    end as status,
    j.priority, j.payload ->> '$.prompt' as prompt, coalesce(j.payload -> '$.input_files', '[]') as input_files,
    coalesce(j.payload -> '$.output_spec', '[]') as output_spec, j.idempotency_key, j.attempt,
    k.account_id as leased_by, k.expires_at as lease_expires_at,
    j.next_retry_at as next_attempt_at, j.error_message, j.created_at, j.updated_at
  from jobs j left join job_claims k on k.job_id = j.id where j.kind like 'cli.%';

create view task_runs as
  select id, job_id as task_id, attempt, class as status, started_at, finished_at, exit_code, stdout, stderr,
    output_files, tokens_in + tokens_out as tokens_used, latency_ms
  from tool_runs;

create view task_files as
  select f.id, f.job_id as task_id, f.path, f.is_input, c.content, f.size_bytes
  from job_files f left join file_contents c on c.tenant_id = f.tenant_id and c.hash = f.hash;
