-- Paused queues: no claim takes a job of one.
--
--   queue_pauses   a row for each pause, by whom and why; the queue is paused while it has one that has not ended. A claim looks there once.

create table perdure.queue_pauses (
  id uuid primary key,
  tenant_id text not null default 'default',
  queue text not null,
  lane text not null,  -- where the jobs of the queue wait
  paused_at timestamptz not null default perdure.db_now(),
  paused_by text not null default session_user,
  paused_via text,
  reason text,
  resumed_at timestamptz,
  resumed_by text,
  resumed_via text,
  resumed_reason text,
  constraint queue_pauses_lane check (lane = case tenant_id when 'default' then queue else tenant_id || ':' || queue end),
  constraint queue_pauses_resumed check ((resumed_at is null) = (resumed_by is null))
);
create unique index queue_pauses_open on perdure.queue_pauses (lane) where resumed_at is null;
create index queue_pauses_tenant on perdure.queue_pauses (tenant_id, id);

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
    execute format('grant %s on perdure.queue_pauses to %s', r.rights, r.who);
  end loop;
end $$;

comment on table perdure.queue_pauses is 'Pauses of queues: those without resumed_at hold now.';
comment on column perdure.queue_pauses.id is 'UUIDv7.';
comment on column perdure.queue_pauses.tenant_id is 'Whose queue it is.';
comment on column perdure.queue_pauses.queue is 'The queue.';
comment on column perdure.queue_pauses.lane is 'As in jobs: the tenant and the queue.';
comment on column perdure.queue_pauses.paused_at is 'Since when it is paused.';
comment on column perdure.queue_pauses.paused_by is 'Who paused it.';
comment on column perdure.queue_pauses.paused_via is 'Via what: python, cli, ...';
comment on column perdure.queue_pauses.reason is 'Why it was paused.';
comment on column perdure.queue_pauses.resumed_at is 'When the pause ended; null: it holds.';
comment on column perdure.queue_pauses.resumed_by is 'Who resumed it.';
comment on column perdure.queue_pauses.resumed_via is 'Via what it was resumed.';
comment on column perdure.queue_pauses.resumed_reason is 'Why it was resumed.';
