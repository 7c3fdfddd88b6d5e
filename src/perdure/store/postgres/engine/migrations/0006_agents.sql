-- Agents: instances with a mailbox, the messages between them, and their state.
--
--   jobs              agent_id, session_id: the agent whose job it is, and the conversation it belongs to
--   agent_instances   the agents; their status is derived, by the view `agents`
--   agent_jobs        the jobs of agents that have not ended: so nothing reads the history of an agent
--   agent_messages    one row for each message: inbox and outbox are views of it
--   agent_states      what jobs saved for the next job of their session
--   agent_deliveries  when to look at the mailbox of which agent; emptied all the time
--
-- A job without an agent writes none of these. docs/design/0033-agents.md says how messages are bound.

alter table perdure.jobs add column agent_id text, add column session_id text,
  add constraint jobs_agent_id check (length(agent_id) between 1 and 100),
  add constraint jobs_session_id check (session_id is null or agent_id is not null and length(session_id) between 1 and 200);
create index jobs_agent on perdure.jobs (agent_id, id) where agent_id is not null;

create table perdure.agent_instances (
  tenant_id text not null default 'default',
  id text not null,
  name text,
  kind text not null,
  queue text not null default 'default',
  default_session_id text,
  meta json not null default '{}',
  intake text not null default 'each',
  batch int not null default 1,
  on_busy text not null default 'enqueue',
  max_parallel_jobs int not null default 1,
  max_retries smallint,
  backoff json,
  paused_at timestamptz,
  created_at timestamptz not null default perdure.db_now(),
  updated_at timestamptz not null default perdure.db_now(),
  primary key (tenant_id, id),
  constraint agent_instances_id check (length(id) between 1 and 100),
  constraint agent_instances_intake check (intake in ('each', 'inbox')),
  constraint agent_instances_batch check (batch between 1 and 1000),
  constraint agent_instances_on_busy check (on_busy in ('enqueue', 'reject', 'interrupt', 'parallel')),
  constraint agent_instances_max_parallel_jobs check (max_parallel_jobs between 1 and 1000000),
  constraint agent_instances_max_retries check (max_retries between 0 and 100)
);

create table perdure.agent_jobs (
  tenant_id text not null,
  agent_id text not null,
  job_id uuid not null,
  primary key (tenant_id, agent_id, job_id)
);

create index job_waits_message on perdure.job_waits (job_id) where kind = 'message' and answered_at is null;

create table perdure.agent_messages (
  id uuid primary key default perdure.uuid7(),
  tenant_id text not null default 'default',
  to_agent_id text,
  from_agent_id text,
  channel text not null default 'default',
  payload json not null,
  session_id text,
  created_at timestamptz not null default perdure.db_now(),
  due_at timestamptz not null default perdure.db_now(),
  expires_at timestamptz,
  consumed_by_job_id uuid,
  consumed_at timestamptz,
  consumed_key text,
  refused text,
  causation_id text,
  idempotency_key text,
  job_id uuid,
  reply_to uuid,
  reply_channel text,
  constraint agent_messages_consumed check ((consumed_by_job_id is null) = (consumed_at is null)),
  constraint agent_messages_refused check (refused in ('expired', 'late')),
  constraint agent_messages_one_end check (refused is null or consumed_by_job_id is null)
);
create unique index agent_messages_idempotency on perdure.agent_messages (tenant_id, to_agent_id, idempotency_key)
  where idempotency_key is not null;
create index agent_messages_pending on perdure.agent_messages (tenant_id, to_agent_id, due_at, id)
  where consumed_by_job_id is null and refused is null and to_agent_id is not null;
create index agent_messages_inbox on perdure.agent_messages (tenant_id, to_agent_id, id) where to_agent_id is not null;
create index agent_messages_outbox on perdure.agent_messages (tenant_id, from_agent_id, id) where from_agent_id is not null;
create index agent_messages_consumer on perdure.agent_messages (consumed_by_job_id) where consumed_by_job_id is not null;
create index agent_messages_replies on perdure.agent_messages (reply_to)
  where reply_to is not null and consumed_by_job_id is null and refused is null;
create index agent_messages_sender on perdure.agent_messages (job_id) where job_id is not null;

-- Without a unique index: what writes here waits for no other.
create table perdure.agent_deliveries (tenant_id text not null, agent_id text not null, at timestamptz not null)
  with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index agent_deliveries_due on perdure.agent_deliveries (tenant_id, at);
create index agent_deliveries_agent on perdure.agent_deliveries (tenant_id, agent_id, at);

-- The state of each session of an agent; '' is the session of jobs that have none.
create table perdure.agent_states (
  tenant_id text not null default 'default',
  agent_id text not null,
  session_id text not null,
  version bigint not null,
  state json not null,
  job_id uuid,
  save_key text not null,
  updated_at timestamptz not null default perdure.db_now(),
  primary key (tenant_id, agent_id, session_id),
  constraint agent_states_version check (version > 0)
);

-- The jobs of agents that have not ended.
create function perdure.agent_job_born() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into perdure.agent_jobs (tenant_id, agent_id, job_id) values (new.tenant_id, new.agent_id, new.id);
  return null;
end $$;
create trigger jobs_agent_born after insert on perdure.jobs for each row when (new.agent_id is not null)
  execute function perdure.agent_job_born();

-- A job of an agent has ended or is suspended: the agent may be free for the next message. It takes no lock of the agent.
create function perdure.agent_job_left() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if new.finished_at is not null then
    delete from perdure.agent_jobs a where a.tenant_id = new.tenant_id and a.agent_id = new.agent_id and a.job_id = new.id;
  end if;
  insert into perdure.agent_deliveries (tenant_id, agent_id, at)
    select i.tenant_id, i.id, perdure.db_now() from perdure.agent_instances i
    where i.tenant_id = new.tenant_id and i.id = new.agent_id;
  return null;
end $$;
create trigger jobs_agent_left after update on perdure.jobs for each row
  when (new.agent_id is not null and new.status <> old.status
    and (new.finished_at is not null or new.status in ('PARKED', 'WAITING_FOR_APPROVAL')))
  execute function perdure.agent_job_left();

-- The mailbox is looked at when a message is due. A reply that is waited for has a mailbox of its own, named as its channel.
create function perdure.agent_message_sent() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into perdure.agent_deliveries (tenant_id, agent_id, at)
    values (new.tenant_id, case when new.channel like 'reply:%' then new.channel else new.to_agent_id end, new.due_at);
  return null;
end $$;
create trigger agent_messages_sent after insert on perdure.agent_messages for each row
  when (new.consumed_by_job_id is null and (new.to_agent_id is not null or new.channel like 'reply:%'))
  execute function perdure.agent_message_sent();

create view perdure.agents as
  select i.*, case
      when exists (select from perdure.agent_jobs a join perdure.jobs j on j.id = a.job_id
        where a.tenant_id = i.tenant_id and a.agent_id = i.id and j.status = 'RUNNING') then 'running'
      when exists (select from perdure.agent_jobs a join perdure.jobs j on j.id = a.job_id
        where a.tenant_id = i.tenant_id and a.agent_id = i.id and j.status = 'WAITING') then 'waiting'
      when exists (select from perdure.agent_jobs a join perdure.jobs j on j.id = a.job_id
        where a.tenant_id = i.tenant_id and a.agent_id = i.id and j.status in ('PARKED', 'WAITING_FOR_APPROVAL')) then 'parked'
      when exists (select from perdure.agent_messages m where m.tenant_id = i.tenant_id and m.to_agent_id = i.id
        and m.consumed_by_job_id is null and m.refused is null and m.due_at > perdure.db_now()) then 'parked'
      when (select j.status from perdure.jobs j where j.agent_id = i.id and j.tenant_id = i.tenant_id
        and j.status in ('COMPLETED', 'FAILED', 'DEADLETTER') order by j.id desc limit 1) in ('FAILED', 'DEADLETTER') then 'failed'
      else 'idle'
    end as status
  from perdure.agent_instances i;

create view perdure.agent_inbox as
  select id, to_agent_id, from_agent_id, channel, payload, created_at,
    case when due_at <= perdure.db_now() then due_at end as delivered_at, consumed_by_job_id, consumed_at, tenant_id
  from perdure.agent_messages where to_agent_id is not null;

create view perdure.agent_outbox as
  select id, from_agent_id, to_agent_id, channel, payload, created_at, job_id, tenant_id
  from perdure.agent_messages where from_agent_id is not null;

create view perdure.agent_message_sends as select * from perdure.agent_outbox;

-- Roles that may write the other tables may write these, and those that enqueue may name an agent.
do $$
declare
  r record;
begin
  for r in select case a.grantee when 0 then 'public' else a.grantee::regrole::text end as who,
      string_agg(a.privilege_type, ', ') as rights
    from pg_catalog.pg_class c cross join pg_catalog.aclexplode(c.relacl) a
    where c.oid = 'perdure.job_claims'::regclass and a.grantee <> c.relowner
      and a.privilege_type in ('SELECT', 'INSERT', 'UPDATE', 'DELETE') group by a.grantee loop
    execute format('grant %s on perdure.agent_instances, perdure.agent_jobs, perdure.agent_messages, '
      'perdure.agent_deliveries, perdure.agent_states to %s', r.rights, r.who);
    if r.rights like '%SELECT%' then
      execute format('grant select on perdure.agents, perdure.agent_inbox, perdure.agent_outbox, perdure.agent_message_sends to %s',
        r.who);
    end if;
  end loop;
  for r in select distinct case a.grantee when 0 then 'public' else a.grantee::regrole::text end as who
    from pg_catalog.pg_attribute c cross join pg_catalog.aclexplode(c.attacl) a
    where c.attrelid = 'perdure.jobs'::regclass and c.attname = 'goal' and a.privilege_type = 'INSERT' loop
    execute format('grant insert (agent_id, session_id) on perdure.jobs to %s', r.who);
  end loop;
end $$;

comment on column perdure.jobs.agent_id is 'The agent whose job it is.';
comment on column perdure.jobs.session_id is 'The conversation of that agent.';
comment on table perdure.agent_instances is 'Agents; see docs/agents.md.';
comment on column perdure.agent_instances.tenant_id is 'As in jobs.';
comment on column perdure.agent_instances.id is 'Its name in commands and in messages.';
comment on column perdure.agent_instances.name is 'For people.';
comment on column perdure.agent_instances.kind is 'The handler of its jobs.';
comment on column perdure.agent_instances.queue is 'The queue of its jobs.';
comment on column perdure.agent_instances.default_session_id is 'The session of jobs and messages that name none.';
comment on column perdure.agent_instances.meta is 'Anything, as a JSON object: its persona, labels, settings.';
comment on column perdure.agent_instances.intake is 'each: a job for each message; inbox: messages wait until it is free.';
comment on column perdure.agent_instances.batch is 'How many messages a job from the inbox gets at most.';
comment on column perdure.agent_instances.on_busy is 'What becomes of a message while it has a job: enqueue, reject, interrupt, parallel.';
comment on column perdure.agent_instances.max_parallel_jobs is 'How many of its jobs run at a time.';
comment on column perdure.agent_instances.max_retries is 'Of its jobs; null: as the handler says.';
comment on column perdure.agent_instances.backoff is 'Of its jobs, as JSON; null: as the handler says.';
comment on column perdure.agent_instances.paused_at is 'Since when no message is accepted or delivered; null: they are.';
comment on column perdure.agent_instances.created_at is 'When it was created.';
comment on column perdure.agent_instances.updated_at is 'When it was changed last.';
comment on table perdure.agent_jobs is 'The jobs of agents that have not ended.';
comment on column perdure.agent_jobs.tenant_id is 'As in jobs.';
comment on column perdure.agent_jobs.agent_id is 'The agent.';
comment on column perdure.agent_jobs.job_id is 'The job.';
comment on table perdure.agent_messages is 'Messages to and from agents.';
comment on column perdure.agent_messages.id is 'Of the message.';
comment on column perdure.agent_messages.tenant_id is 'As in jobs.';
comment on column perdure.agent_messages.to_agent_id is 'The agent it is for; null: a reply to a sender that is no agent.';
comment on column perdure.agent_messages.from_agent_id is 'The agent that sent it.';
comment on column perdure.agent_messages.channel is 'What it is about.';
comment on column perdure.agent_messages.payload is 'What it says.';
comment on column perdure.agent_messages.session_id is 'The session of the job that gets it; null: the default of its agent.';
comment on column perdure.agent_messages.created_at is 'When it was sent.';
comment on column perdure.agent_messages.due_at is 'When it may be delivered.';
comment on column perdure.agent_messages.expires_at is 'When it is no longer delivered.';
comment on column perdure.agent_messages.consumed_by_job_id is 'The job that got it.';
comment on column perdure.agent_messages.consumed_at is 'When that job got it.';
comment on column perdure.agent_messages.consumed_key is 'The wait of that job which it answered; null where it started the job.';
comment on column perdure.agent_messages.refused is 'Why it was not delivered: expired, or late: a reply that is no longer waited for.';
comment on column perdure.agent_messages.causation_id is 'What caused it, as its sender says.';
comment on column perdure.agent_messages.idempotency_key is 'Messages to one agent with the same one are one.';
comment on column perdure.agent_messages.job_id is 'The job that sent it.';
comment on column perdure.agent_messages.reply_to is 'The message it answers.';
comment on column perdure.agent_messages.reply_channel is 'The channel for its reply, where the sender waits for one.';
comment on table perdure.agent_states is 'What jobs of agents saved for the next job of their session.';
comment on column perdure.agent_states.tenant_id is 'As in jobs.';
comment on column perdure.agent_states.agent_id is 'The agent.';
comment on column perdure.agent_states.session_id is 'The session; empty for that of jobs without one.';
comment on column perdure.agent_states.version is 'How often it was saved.';
comment on column perdure.agent_states.state is 'What was saved last, as JSON.';
comment on column perdure.agent_states.job_id is 'The job that saved it; null: a client did.';
comment on column perdure.agent_states.save_key is 'The key of its call: a call that is written twice counts once.';
comment on column perdure.agent_states.updated_at is 'When it was saved.';
comment on table perdure.agent_deliveries is 'When to look at the mailbox of which agent; emptied all the time.';
comment on column perdure.agent_deliveries.tenant_id is 'As in jobs.';
comment on column perdure.agent_deliveries.agent_id is 'The agent, or the channel of a reply that is waited for.';
comment on column perdure.agent_deliveries.at is 'When.';
comment on view perdure.agents is 'Agents with their status: running, waiting, parked, failed or idle.';
comment on view perdure.agent_inbox is 'Messages to agents, in the words of the design document.';
comment on view perdure.agent_outbox is 'Messages from agents, in the words of the design document.';
comment on view perdure.agent_message_sends is 'The same as agent_outbox.';
