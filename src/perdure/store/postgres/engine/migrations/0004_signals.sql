-- Signals: what is sent to a running or waiting job under a key.
--
--   signals   a row per signal; pending until a wait of the same key takes it: then consumed_by_job_id, consumed_at and the key of
--             that wait are set, in the transaction that sends the signal or that opens the wait
--
-- What sends, binds or releases signals of a job has locked its claim or the job itself: no two of them run at the same time.
-- docs/design/0031-signals.md says why none is lost or taken twice.

create table perdure.signals (
  id uuid primary key,
  tenant_id text not null default 'default',
  job_id uuid not null,
  key text not null,
  payload json not null,
  caller_id text,
  actor text not null,
  via text not null,
  created_at timestamptz not null default perdure.db_now(),
  consumed_by_job_id uuid,
  consumed_at timestamptz,
  wait_key text,
  refused text,
  constraint signals_key check (length(key) between 1 and 200),
  constraint signals_caller_id check (length(caller_id) between 1 and 200),
  constraint signals_consumed check ((consumed_by_job_id is null) = (consumed_at is null)),
  constraint signals_wait_key check (wait_key is null or consumed_at is not null),
  constraint signals_refused check (refused is null or (consumed_at is not null and wait_key is null))
);
-- A caller's id is one signal; without one they are different. Also how the signals of a job are found.
create unique index signals_job on perdure.signals (job_id, caller_id);
create index signals_pending on perdure.signals (job_id, key, created_at, id) where consumed_at is null;
-- A wait takes one signal.
create unique index signals_bound on perdure.signals (consumed_by_job_id, wait_key) where wait_key is not null;

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
    execute format('grant %s on perdure.signals to %s', r.rights, r.who);
  end loop;
end $$;

comment on table perdure.signals is 'What was sent to jobs under a key; pending until a wait takes it.';
comment on column perdure.signals.id is 'Of the signal.';
comment on column perdure.signals.tenant_id is 'As in jobs.';
comment on column perdure.signals.job_id is 'The job it was sent to.';
comment on column perdure.signals.key is 'What a wait for it names.';
comment on column perdure.signals.payload is 'What was sent, as JSON.';
comment on column perdure.signals.caller_id is 'The id its sender gave it: a second one with it is the same signal.';
comment on column perdure.signals.actor is 'Who sent it.';
comment on column perdure.signals.via is 'Via what.';
comment on column perdure.signals.created_at is 'When it was sent.';
comment on column perdure.signals.consumed_by_job_id is 'The job that took it.';
comment on column perdure.signals.consumed_at is 'When it was taken.';
comment on column perdure.signals.wait_key is 'The key of the wait that took it, in that job.';
comment on column perdure.signals.refused is 'Why the handler did not take it: its payload does not fit.';
