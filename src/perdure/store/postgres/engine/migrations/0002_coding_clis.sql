-- Coding CLIs: the accounts they run under, the files of jobs, and what came of each run.
--
--   accounts       the accounts of tools; no secret is in them, only where one is
--   file_contents  contents by their SHA-256, each once for a tenant
--   job_files      the input and output files of jobs: paths, and which contents
--   tool_runs      one row for each run of a CLI that ended
--   tool_output    what a running CLI writes, in chunks
--   tasks, task_runs, task_files    views: the jobs that run a CLI in the words of the design document

create table perdure.accounts (
  id text not null,
  tenant_id text not null default 'default',
  tool text not null,
  group_name text not null,
  name text,
  env_vars json not null default '{}',
  cred_ref text,
  enabled boolean not null default true,
  max_concurrency int not null,
  dangerous boolean not null default false,
  parked_until timestamptz,
  parked_reason text,
  failed_probes int not null default 0,
  created_at timestamptz not null default perdure.db_now(),
  updated_at timestamptz not null default perdure.db_now(),
  primary key (tenant_id, id),
  constraint accounts_max_concurrency check (max_concurrency between 0 and 10000)
);
create unique index accounts_group_name on perdure.accounts (tenant_id, group_name);

-- The slot that a run takes of its account is its lease: no counter that a crash could leave behind.
alter table perdure.job_claims add column account_id text;
create index job_claims_account on perdure.job_claims (tenant_id, account_id) where account_id is not null;
create view perdure.concurrency_limits as
  select 'account:' || a.id as scope, a.max_concurrency as max_concurrent, (select count(*) from perdure.job_claims k
    where k.tenant_id = a.tenant_id and k.account_id = a.id and k.expires_at > perdure.db_now())::int as current_concurrent,
    a.tenant_id
  from perdure.accounts a;

create table perdure.file_contents (
  tenant_id text not null,
  hash text not null,
  size_bytes bigint not null,
  content bytea,
  created_at timestamptz not null default perdure.db_now(),
  primary key (tenant_id, hash)
);

create table perdure.job_files (
  id uuid primary key default perdure.uuid7(),
  tenant_id text not null,
  job_id uuid not null,
  attempt int not null,
  is_input boolean not null,
  path text not null,
  hash text not null,
  size_bytes bigint not null,
  created_at timestamptz not null default perdure.db_now(),
  unique (job_id, is_input, attempt, path)
);
create index job_files_hash on perdure.job_files (tenant_id, hash);

-- A job made from another one (rerun, fork) has the same inputs.
create function perdure.jobs_copy_inputs() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  insert into perdure.job_files (tenant_id, job_id, attempt, is_input, path, hash, size_bytes)
    select tenant_id, new.id, attempt, true, path, hash, size_bytes from perdure.job_files
    where job_id = new.origin_id and is_input and tenant_id = new.tenant_id;
  return null;
end $$;
create trigger jobs_copy_inputs after insert on perdure.jobs for each row when (new.origin_id is not null)
  execute function perdure.jobs_copy_inputs();

create table perdure.tool_runs (
  id uuid not null default perdure.uuid7(),
  job_id uuid not null,
  attempt int not null,
  tenant_id text not null,
  tool text not null,
  account_id text,
  worker_id text not null,
  started_at timestamptz not null,
  finished_at timestamptz not null default perdure.db_now(),
  exit_code int,
  class text not null,
  detail text not null,
  message text not null,
  stdout text not null,
  stderr text not null,
  output_files json not null default '[]',
  tokens_in bigint not null default 0,
  tokens_out bigint not null default 0,
  tokens_cached bigint not null default 0,
  cost numeric check (cost >= 0 and cost < 'Infinity'),
  latency_ms bigint not null,
  session_id text,
  final_text text not null,
  sandbox json not null default '{}',
  primary key (job_id, attempt)
);

create table perdure.tool_output (
  job_id uuid not null,
  attempt int not null,
  seq int not null,
  stream text not null check (stream in ('stdout', 'stderr')),
  content bytea not null,
  created_at timestamptz not null default perdure.db_now(),
  primary key (job_id, attempt, seq)
);

create view perdure.tasks as
  select j.id, j.tenant_id, substr(j.kind, 5) as tool, j.payload ->> 'model' as model,
    case
      when j.status in ('PENDING', 'RETRY', 'PARKED', 'WAITING_FOR_APPROVAL') then 'queued'
      when j.status = 'RUNNING' and not coalesce(k.started, false) then 'leased'
      when j.status in ('RUNNING', 'WAITING') then 'running'
      when j.status = 'COMPLETED' then 'succeeded'
      when j.status = 'FAILED' then 'failed'
      when j.status = 'CANCELLED' then 'canceled'
      else 'deadletter'
    end as status,
    j.priority, j.payload ->> 'prompt' as prompt, coalesce(j.payload -> 'input_files', '[]') as input_files,
    coalesce(j.payload -> 'output_spec', '[]') as output_spec, j.idempotency_key, j.attempt,
    k.account_id as leased_by, k.expires_at as lease_expires_at,
    j.next_retry_at as next_attempt_at, j.error_message, j.created_at, j.updated_at
  from perdure.jobs j left join perdure.job_claims k on k.job_id = j.id where j.kind like 'cli.%';

create view perdure.task_runs as
  select id, job_id as task_id, attempt, class as status, started_at, finished_at, exit_code, stdout, stderr,
    output_files, tokens_in + tokens_out as tokens_used, latency_ms
  from perdure.tool_runs;

create view perdure.task_files as
  select f.id, f.job_id as task_id, f.path, f.is_input, c.content, f.size_bytes
  from perdure.job_files f left join perdure.file_contents c on c.tenant_id = f.tenant_id and c.hash = f.hash;

comment on table perdure.accounts is 'Under whose credential a coding CLI runs; see docs/coding-clis.md.';
comment on column perdure.accounts.id is 'Its name in commands.';
comment on column perdure.accounts.tenant_id is 'As in jobs.';
comment on column perdure.accounts.tool is 'The tool it is for.';
comment on column perdure.accounts.group_name is 'What worker start --accounts takes as well.';
comment on column perdure.accounts.name is 'For people.';
comment on column perdure.accounts.env_vars is 'The environment of its runs, by variable; secrets as env:NAME or file:PATH.';
comment on column perdure.accounts.cred_ref is 'A file or folder that is put where the tool looks for its credential.';
comment on column perdure.accounts.enabled is 'Whether tasks may start under it.';
comment on column perdure.accounts.max_concurrency is 'Tasks at once.';
comment on column perdure.accounts.dangerous is 'Whether dangerous flags are permitted.';
comment on column perdure.accounts.parked_until is 'No task starts under it before.';
comment on column perdure.accounts.parked_reason is 'What the tool said.';
comment on column perdure.accounts.failed_probes is 'How often its credential was refused in a row.';
comment on column perdure.accounts.created_at is 'When it was added.';
comment on column perdure.accounts.updated_at is 'When it changed last.';
comment on column perdure.job_claims.account_id is 'The account whose slot the job has.';
comment on view perdure.concurrency_limits is 'Slots of accounts: how many there are, and how many live leases have one.';
comment on table perdure.file_contents is 'Contents of files by their SHA-256.';
comment on column perdure.file_contents.tenant_id is 'As in jobs.';
comment on column perdure.file_contents.hash is 'SHA-256 of the content, in hex.';
comment on column perdure.file_contents.size_bytes is 'Its length.';
comment on column perdure.file_contents.content is 'The content.';
comment on column perdure.file_contents.created_at is 'When it was written last.';
comment on table perdure.job_files is 'The input and output files of jobs.';
comment on column perdure.job_files.id is 'Of the file.';
comment on column perdure.job_files.tenant_id is 'As in jobs.';
comment on column perdure.job_files.job_id is 'The job.';
comment on column perdure.job_files.attempt is 'The attempt that wrote it; 0 for an input.';
comment on column perdure.job_files.is_input is 'Whether it was given to the job.';
comment on column perdure.job_files.path is 'Its path in the workspace.';
comment on column perdure.job_files.hash is 'Of its content, in file_contents.';
comment on column perdure.job_files.size_bytes is 'Its length.';
comment on column perdure.job_files.created_at is 'When it was stored.';
comment on table perdure.tool_runs is 'One row for each run of a coding CLI that ended.';
comment on column perdure.tool_runs.id is 'Of the run.';
comment on column perdure.tool_runs.job_id is 'The job.';
comment on column perdure.tool_runs.attempt is 'The attempt.';
comment on column perdure.tool_runs.tenant_id is 'As in jobs.';
comment on column perdure.tool_runs.tool is 'The tool.';
comment on column perdure.tool_runs.account_id is 'The account it ran under.';
comment on column perdure.tool_runs.worker_id is 'Who ran it.';
comment on column perdure.tool_runs.started_at is 'When it began.';
comment on column perdure.tool_runs.finished_at is 'When it ended.';
comment on column perdure.tool_runs.exit_code is 'Of the program; negative for a signal.';
comment on column perdure.tool_runs.class is 'How it ended: ok, retryable, rate_limited, ...';
comment on column perdure.tool_runs.detail is 'One word that says more.';
comment on column perdure.tool_runs.message is 'One line for people.';
comment on column perdure.tool_runs.stdout is 'The first and last part of the output.';
comment on column perdure.tool_runs.stderr is 'The same of the errors.';
comment on column perdure.tool_runs.output_files is 'Paths and sizes of what was collected, as JSON.';
comment on column perdure.tool_runs.tokens_in is 'Input tokens, with those from the cache.';
comment on column perdure.tool_runs.tokens_out is 'Output tokens.';
comment on column perdure.tool_runs.tokens_cached is 'The part of tokens_in from the cache.';
comment on column perdure.tool_runs.cost is 'In US dollars, as the tool estimates it.';
comment on column perdure.tool_runs.latency_ms is 'How long it ran.';
comment on column perdure.tool_runs.session_id is 'Of the tool: to continue with.';
comment on column perdure.tool_runs.final_text is 'The answer.';
comment on column perdure.tool_runs.sandbox is 'How it was confined, as JSON.';
comment on table perdure.tool_output is 'What a coding CLI wrote while it ran, in chunks.';
comment on column perdure.tool_output.job_id is 'The job.';
comment on column perdure.tool_output.attempt is 'The attempt.';
comment on column perdure.tool_output.seq is 'Counts the chunks of an attempt from 1.';
comment on column perdure.tool_output.stream is 'stdout or stderr.';
comment on column perdure.tool_output.content is 'What was written.';
comment on column perdure.tool_output.created_at is 'When it was stored.';
comment on view perdure.tasks is 'The jobs that run a coding CLI, in the words of the design document.';
comment on view perdure.task_runs is 'Their runs.';
comment on view perdure.task_files is 'Their files.';
