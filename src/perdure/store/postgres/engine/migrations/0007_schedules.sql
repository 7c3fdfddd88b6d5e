-- Schedules: jobs that are started by themselves, by cron, at an interval, or once.
--
--   schedules      one row each; next_at is the next firing, null where it is paused or nothing is left

create table perdure.schedules (
  tenant_id text not null default 'default',
  id text not null,
  kind text not null,
  payload json not null default 'null',
  cron text,
  every float8,  -- seconds
  at timestamptz,
  timezone text not null default 'UTC',
  anchor timestamptz not null default perdure.db_now(),  -- what intervals are counted from
  queue text not null default 'default',
  priority smallint not null default 5,
  max_retries smallint,
  concurrency_key text,
  max_concurrent int,
  overlap text not null default 'skip',
  catch_up float8 not null default 3600,  -- seconds
  jitter float8 not null default 0,  -- seconds
  next_at timestamptz,
  paused_at timestamptz,
  last_at timestamptz,  -- the last firing that started a job
  last_job_id uuid,
  skipped_at timestamptz,  -- the last firing that started none
  skipped text,
  created_at timestamptz not null default perdure.db_now(),
  updated_at timestamptz not null default perdure.db_now(),
  set_by text not null default session_user,
  primary key (tenant_id, id),
  constraint schedules_id check (length(id) between 1 and 100),
  constraint schedules_rule check (num_nonnulls(cron, every, at) = 1),
  constraint schedules_every check (every >= 1 and every < 'Infinity'),
  constraint schedules_lengths check (catch_up >= 0 and jitter >= 0 and greatest(catch_up, jitter) < 'Infinity'),
  constraint schedules_priority check (priority between 1 and 9),
  constraint schedules_max_retries check (max_retries between 0 and 100),
  constraint schedules_concurrency_key check (length(concurrency_key) between 1 and 200),
  constraint schedules_max_concurrent check (max_concurrent is null or max_concurrent >= 1 and concurrency_key is not null),
  constraint schedules_overlap check (overlap in ('skip', 'enqueue', 'cancel-old')),
  constraint schedules_skipped check ((skipped is null) = (skipped_at is null) and skipped in ('overlap', 'missed')),
  constraint schedules_paused check (paused_at is null or next_at is null),
  constraint schedules_times check (least(at, anchor, next_at, last_at) >= '0002-01-01 00:00 UTC'
    and greatest(at, anchor, next_at, last_at) <= '9999-01-01 00:00 UTC')
);
create index schedules_due on perdure.schedules (tenant_id, next_at) where next_at is not null;

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
    execute format('grant %s on perdure.schedules to %s', r.rights, r.who);
  end loop;
end $$;

comment on table perdure.schedules is 'Jobs that are started by themselves: by cron, at an interval, or once.';
comment on column perdure.schedules.tenant_id is 'Whose it is.';
comment on column perdure.schedules.id is 'Its name, unique within the tenant.';
comment on column perdure.schedules.kind is 'The handler of its jobs.';
comment on column perdure.schedules.payload is 'The input of its jobs.';
comment on column perdure.schedules.cron is 'A cron expression of five fields, or six with seconds first.';
comment on column perdure.schedules.every is 'An interval in seconds.';
comment on column perdure.schedules.at is 'The one time it fires.';
comment on column perdure.schedules.timezone is 'The IANA name of the time zone of the cron expression.';
comment on column perdure.schedules.anchor is 'What intervals are counted from.';
comment on column perdure.schedules.queue is 'Of its jobs.';
comment on column perdure.schedules.priority is 'Of its jobs.';
comment on column perdure.schedules.max_retries is 'Of its jobs; null: what their handler says.';
comment on column perdure.schedules.concurrency_key is 'Of its jobs.';
comment on column perdure.schedules.max_concurrent is 'Of its jobs.';
comment on column perdure.schedules.overlap is 'What a firing does while the last job has not ended: skip, enqueue or cancel-old.';
comment on column perdure.schedules.catch_up is 'Seconds: what was missed and is not older is made up for.';
comment on column perdure.schedules.jitter is 'Seconds: each job starts up to so much later.';
comment on column perdure.schedules.next_at is 'The next firing; null where it is paused or nothing is left.';
comment on column perdure.schedules.paused_at is 'Since when it is paused.';
comment on column perdure.schedules.last_at is 'The last firing that started a job.';
comment on column perdure.schedules.last_job_id is 'The job of that firing, or of the last trigger.';
comment on column perdure.schedules.skipped_at is 'The last firing that started none.';
comment on column perdure.schedules.skipped is 'Why: overlap or missed.';
comment on column perdure.schedules.created_at is 'When it was added.';
comment on column perdure.schedules.updated_at is 'When it was last changed by its owner.';
comment on column perdure.schedules.set_by is 'Who changed it last.';
