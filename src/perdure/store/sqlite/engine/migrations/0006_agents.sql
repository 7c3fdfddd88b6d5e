-- Agents: instances with a mailbox, the messages between them, and their state. The same tables, columns and views as on
-- PostgreSQL; see there.

alter table jobs add column agent_id text check (agent_id is null or length(agent_id) between 1 and 100);
alter table jobs add column session_id text
  check (session_id is null or (agent_id is not null and length(session_id) between 1 and 200));
create index jobs_agent on jobs (agent_id, id) where agent_id is not null;

create table agent_instances (
  tenant_id text not null default 'default',
  id text not null check (length(id) between 1 and 100),
  name text,
  kind text not null,
  queue text not null default 'default',
  default_session_id text,
  meta text not null default '{}' check (json_valid(meta)),
  intake text not null default 'each' check (intake in ('each', 'inbox')),
  batch integer not null default 1 check (batch between 1 and 1000),
  on_busy text not null default 'enqueue' check (on_busy in ('enqueue', 'reject', 'interrupt', 'parallel')),
  max_parallel_jobs integer not null default 1 check (max_parallel_jobs between 1 and 1000000),
  max_retries integer check (max_retries is null or max_retries between 0 and 100),
  backoff text check (backoff is null or json_valid(backoff)),
  paused_at integer,
  created_at integer not null,
  updated_at integer not null,
  primary key (tenant_id, id)
) strict, without rowid;

create table agent_jobs (
  tenant_id text not null,
  agent_id text not null,
  job_id text not null,
  primary key (tenant_id, agent_id, job_id)
) strict, without rowid;

create index job_waits_message on job_waits (job_id) where kind = 'message' and answered_at is null;

create table agent_messages (
  id text primary key not null,
  tenant_id text not null default 'default',
  to_agent_id text,
  from_agent_id text,
  channel text not null default 'default',
  payload text not null check (json_valid(payload)),
  session_id text,
  created_at integer not null,
  due_at integer not null,
  expires_at integer,
  consumed_by_job_id text,
  consumed_at integer,
  consumed_key text,
  refused text check (refused is null or refused in ('expired', 'late')),
  causation_id text,
  idempotency_key text,
  job_id text,
  reply_to text,
  reply_channel text,
  constraint agent_messages_consumed check ((consumed_by_job_id is null) = (consumed_at is null)),
  constraint agent_messages_one_end check (refused is null or consumed_by_job_id is null)
) strict;
create unique index agent_messages_idempotency on agent_messages (tenant_id, to_agent_id, idempotency_key)
  where idempotency_key is not null;
create index agent_messages_pending on agent_messages (tenant_id, to_agent_id, due_at, id)
  where consumed_by_job_id is null and refused is null and to_agent_id is not null;
create index agent_messages_inbox on agent_messages (tenant_id, to_agent_id, id) where to_agent_id is not null;
create index agent_messages_outbox on agent_messages (tenant_id, from_agent_id, id) where from_agent_id is not null;
create index agent_messages_consumer on agent_messages (consumed_by_job_id) where consumed_by_job_id is not null;
create index agent_messages_replies on agent_messages (reply_to)
  where reply_to is not null and consumed_by_job_id is null and refused is null;
create index agent_messages_sender on agent_messages (job_id) where job_id is not null;

create table agent_deliveries (
  tenant_id text not null,
  agent_id text not null,
  at integer not null,
  primary key (tenant_id, at, agent_id)
) strict, without rowid;
create index agent_deliveries_agent on agent_deliveries (tenant_id, agent_id, at);

create table agent_states (
  tenant_id text not null default 'default',
  agent_id text not null,
  session_id text not null,
  version integer not null check (version > 0),
  state text not null check (json_valid(state)),
  job_id text,
  save_key text not null,
  updated_at integer not null,
  primary key (tenant_id, agent_id, session_id)
) strict, without rowid;

create trigger jobs_agent_born after insert on jobs when new.agent_id is not null
begin
  insert into agent_jobs (tenant_id, agent_id, job_id) values (new.tenant_id, new.agent_id, new.id);
end;

-- A job of an agent has ended or is suspended: the agent may be free for the next message.
create trigger jobs_agent_left after update of status on jobs
when new.agent_id is not null and new.status <> old.status
  and new.status in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER', 'PARKED', 'WAITING_FOR_APPROVAL')
begin
  delete from agent_jobs where tenant_id = new.tenant_id and agent_id = new.agent_id and job_id = new.id
    and new.status not in ('PARKED', 'WAITING_FOR_APPROVAL');
  insert into agent_deliveries (tenant_id, agent_id, at)
    select i.tenant_id, i.id, (select now from clock) from agent_instances i
    where i.tenant_id = new.tenant_id and i.id = new.agent_id on conflict do nothing;
end;

-- The mailbox is looked at when a message is due. A reply that is waited for has a mailbox of its own, named as its channel.
create trigger agent_messages_sent after insert on agent_messages
when new.consumed_by_job_id is null and (new.to_agent_id is not null or new.channel like 'reply:%')
begin
  insert into agent_deliveries (tenant_id, agent_id, at)
    values (new.tenant_id, case when new.channel like 'reply:%' then new.channel else new.to_agent_id end, new.due_at) on conflict do nothing;
end;

create view agents as
  select i.*, case
      when exists (select 1 from agent_jobs a join jobs j on j.id = a.job_id
        where a.tenant_id = i.tenant_id and a.agent_id = i.id and j.status = 'RUNNING') then 'running'
      when exists (select 1 from agent_jobs a join jobs j on j.id = a.job_id
        where a.tenant_id = i.tenant_id and a.agent_id = i.id and j.status = 'WAITING') then 'waiting'
      when exists (select 1 from agent_jobs a join jobs j on j.id = a.job_id
        where a.tenant_id = i.tenant_id and a.agent_id = i.id and j.status in ('PARKED', 'WAITING_FOR_APPROVAL')) then 'parked'
      when exists (select 1 from agent_messages m where m.tenant_id = i.tenant_id and m.to_agent_id = i.id
        and m.consumed_by_job_id is null and m.refused is null and m.due_at > (select now from clock)) then 'parked'
      when (select j.status from jobs j where j.agent_id = i.id and j.tenant_id = i.tenant_id
        and j.status in ('COMPLETED', 'FAILED', 'DEADLETTER') order by j.id desc limit 1) in ('FAILED', 'DEADLETTER') then 'failed'
      else 'idle'
    end as status
  from agent_instances i;

create view agent_inbox as
  select id, to_agent_id, from_agent_id, channel, payload, created_at,
    case when due_at <= (select now from clock) then due_at end as delivered_at, consumed_by_job_id, consumed_at, tenant_id
  from agent_messages where to_agent_id is not null;

create view agent_outbox as
  select id, from_agent_id, to_agent_id, channel, payload, created_at, job_id, tenant_id
  from agent_messages where from_agent_id is not null;

create view agent_message_sends as select * from agent_outbox;
