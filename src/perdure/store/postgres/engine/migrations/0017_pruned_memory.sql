-- The working memory of pruned jobs: nothing that a model said, or that was done for it, goes with its job.
--
--   pruned_memory   of a job that was pruned: the events of its conversation, its variables and its tools, as they were in its log

create table perdure.pruned_memory (
  job_id uuid not null,
  version int not null,
  tenant_id text not null default 'default',
  created_at timestamptz not null,
  attempt int,
  event_id uuid,
  type text not null,
  payload json not null,
  primary key (job_id, version)
);

-- Roles that may write the other tables may write this one.
do $$
declare
  r record;
begin
  for r in select case a.grantee when 0 then 'public' else a.grantee::regrole::text end as who,
      string_agg(a.privilege_type, ', ') as rights
    from pg_catalog.pg_class c cross join pg_catalog.aclexplode(c.relacl) a
    where c.oid = 'perdure.job_waits'::regclass and a.grantee <> c.relowner
      and a.privilege_type in ('SELECT', 'INSERT', 'UPDATE', 'DELETE') group by a.grantee loop
    execute format('grant %s on perdure.pruned_memory to %s', r.rights, r.who);
  end loop;
end $$;

comment on table perdure.pruned_memory is 'Of pruned jobs: the events of their conversation, variables and tools.';
comment on column perdure.pruned_memory.job_id is 'The job, which is in jobs no more.';
comment on column perdure.pruned_memory.version is 'The version of the event in its log.';
comment on column perdure.pruned_memory.tenant_id is 'Whose job it was.';
comment on column perdure.pruned_memory.created_at is 'When it was written.';
comment on column perdure.pruned_memory.attempt is 'The attempt that wrote it.';
comment on column perdure.pruned_memory.event_id is 'As in job_events.';
comment on column perdure.pruned_memory.type is 'As in job_events.';
comment on column perdure.pruned_memory.payload is 'As in job_events.';
