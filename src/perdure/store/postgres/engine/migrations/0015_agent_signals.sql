-- Signals to agents: what is sent to an agent under a key, until a job of the agent gets it.
--
--   agent_signals   a row per signal; the transaction that gives it to a job sets consumed_by_job_id and writes a row of `signals` with
--                   the same id, which the waits of that job take as any other. It writes signal_received into the job's log.
--
-- A job without an agent neither reads nor writes this. docs/design/0037-signals-to-agents.md says how they are given to jobs.

create table perdure.agent_signals (
  id uuid primary key,
  tenant_id text not null default 'default',
  agent_id text not null,
  key text not null,
  payload json not null,
  caller_id text,
  actor text not null,
  via text not null,
  created_at timestamptz not null default perdure.db_now(),
  expires_at timestamptz,
  consumed_by_job_id uuid,
  consumed_at timestamptz,
  constraint agent_signals_key check (length(key) between 1 and 200),
  constraint agent_signals_caller_id check (length(caller_id) between 1 and 200),
  constraint agent_signals_consumed check ((consumed_by_job_id is null) = (consumed_at is null))
);
create unique index agent_signals_caller on perdure.agent_signals (tenant_id, agent_id, caller_id) where caller_id is not null;
create index agent_signals_agent on perdure.agent_signals (tenant_id, agent_id, id);
create index agent_signals_pending on perdure.agent_signals (tenant_id, agent_id, created_at, id) where consumed_by_job_id is null;

create view perdure.agent_pending_signals as
  select id, agent_id, key as correlation_key, payload, created_at, consumed_by_job_id, tenant_id
  from perdure.agent_signals
  where consumed_by_job_id is not null or expires_at is null or expires_at > perdure.db_now();

-- The claim gives the pending signals of an agent to a job of it that is claimed for the first time. Signals that another
-- transaction has locked are left to it.
create function perdure.give_agent_signals(claimed uuid[]) returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  job record;
begin
  for job in
    select j.id, j.tenant_id, j.agent_id from perdure.jobs j
    where j.id = any (claimed) and j.agent_id is not null and j.attempt = 1 and j.status = 'RUNNING'
    order by j.priority desc, j.id
  loop
    with given as (
      update perdure.agent_signals s set consumed_by_job_id = job.id, consumed_at = perdure.db_now()
      where s.id = any (array (
        select p.id from perdure.agent_signals p
        where p.tenant_id = job.tenant_id and p.agent_id = job.agent_id and p.consumed_by_job_id is null
          and (p.expires_at is null or p.expires_at > perdure.db_now())
        order by p.created_at, p.id limit 100 for update skip locked))
      returning s.*
    ), kept as (
      insert into perdure.signals (id, tenant_id, job_id, key, payload, actor, via, created_at)
      select g.id, g.tenant_id, job.id, g.key, g.payload, g.actor, g.via, g.created_at from given g
    ), head as (
      update perdure.job_claims k set version = k.version + g.number
      from (select count(*)::int as number from given) g where k.job_id = job.id and g.number > 0
      returning k.attempt, k.version - g.number as version
    )
    insert into perdure.job_events (job_id, version, attempt, type, payload)
    select job.id, h.version + row_number() over (order by g.created_at, g.id), h.attempt, 'signal_received',
      json_build_object('signal', g.id, 'subject', g.key, 'actor', g.actor, 'via', g.via, 'agent', g.agent_id,
        'payload', g.payload::text)
    from given g cross join head h;
  end loop;
end $$;

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
    execute format('grant %s on perdure.agent_signals to %s', r.rights, r.who);
    if r.rights like '%SELECT%' then
      execute format('grant select on perdure.agent_pending_signals to %s', r.who);
    end if;
  end loop;
end $$;

comment on table perdure.agent_signals is 'What was sent to agents under a key; pending until a job of the agent gets it.';
comment on column perdure.agent_signals.id is 'Of the signal; as a signal of the job that gets it, it has the same.';
comment on column perdure.agent_signals.tenant_id is 'As in jobs.';
comment on column perdure.agent_signals.agent_id is 'The agent it was sent to.';
comment on column perdure.agent_signals.key is 'What a wait for it names.';
comment on column perdure.agent_signals.payload is 'What was sent, as JSON.';
comment on column perdure.agent_signals.caller_id is 'The id its sender gave it: a second one with it is the same signal.';
comment on column perdure.agent_signals.actor is 'Who sent it.';
comment on column perdure.agent_signals.via is 'Via what.';
comment on column perdure.agent_signals.created_at is 'When it was sent.';
comment on column perdure.agent_signals.expires_at is 'When no job gets it any more; null: never.';
comment on column perdure.agent_signals.consumed_by_job_id is 'The job that got it.';
comment on column perdure.agent_signals.consumed_at is 'When that job got it.';
comment on view perdure.agent_pending_signals is 'The signals to agents that a job got, or still may get.';
