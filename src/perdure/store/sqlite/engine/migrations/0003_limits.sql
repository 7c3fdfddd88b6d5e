-- Limits: how many jobs of one concurrency key run at a time. The same tables and columns as on PostgreSQL; see there.
-- Where the dialect differs: a transaction of the writer has the file for itself, so there is no lock of a key, and what are
-- functions there are statements of leases/limited.sql.

alter table jobs add column concurrency_key text
  check (concurrency_key is null or length(concurrency_key) between 1 and 200);
alter table jobs add column max_concurrent integer
  check (max_concurrent is null or (max_concurrent >= 1 and concurrency_key is not null));
alter table job_queue add column tenant_id text;
alter table job_queue add column concurrency_key text;
alter table job_queue add column max_concurrent integer;
alter table job_queue add column held integer not null default 0 check (held in (0, 1));
alter table job_claims add column concurrency_key text;
alter table job_claims add column max_concurrent integer;

-- `held` is in the index although it is always 0: so the claim's look at it reads no row.
drop index job_queue_ready;
create index job_queue_ready on job_queue (lane, kind, priority, run_at, job_id, held) where held = 0;
create index job_queue_keyed on job_queue (tenant_id, concurrency_key, held, lane, kind, priority desc, run_at, job_id)
  where concurrency_key is not null;
create index job_claims_keyed on job_claims (tenant_id, concurrency_key) where concurrency_key is not null;

create table limits (
  tenant_id text not null default 'default',
  key text not null check (length(key) between 1 and 200),
  max integer not null check (max >= 0),
  set_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000),
  set_by text not null default 'sql',
  primary key (tenant_id, key)
) strict, without rowid;

create table freed_slots (tenant_id text not null, key text not null, primary key (tenant_id, key)) strict, without rowid;

drop view concurrency_limits;
create view concurrency_limits as
  select 'account:' || a.id as scope, a.max_concurrency as max_concurrent, (select count(*) from job_claims k
    where k.tenant_id = a.tenant_id and k.account_id = a.id and k.expires_at > (select now from clock)) as current_concurrent,
    a.tenant_id
  from accounts a
  union all
  select l.key, l.max, (select count(*) from job_claims k where k.tenant_id = l.tenant_id and k.concurrency_key = l.key), l.tenant_id
  from limits l
  union all
  select k.concurrency_key, max(k.max_concurrent), count(*), k.tenant_id from job_claims k
  where k.concurrency_key is not null
    and not exists (select 1 from limits l where l.tenant_id = k.tenant_id and l.key = k.concurrency_key)
  group by k.tenant_id, k.concurrency_key;

-- The end of a lease frees its slot, whatever ended it.
create trigger job_claims_freed after delete on job_claims when old.concurrency_key is not null
begin
  insert into freed_slots (tenant_id, key) values (old.tenant_id, old.concurrency_key) on conflict do nothing;
end;

-- A limit that was set, raised or removed: those that it held are looked at again.
create trigger limits_set after insert on limits
begin
  insert into freed_slots (tenant_id, key) values (new.tenant_id, new.key) on conflict do nothing;
end;
create trigger limits_changed after update on limits
begin
  insert into freed_slots (tenant_id, key) values (new.tenant_id, new.key) on conflict do nothing;
end;
create trigger limits_removed after delete on limits
begin
  insert into freed_slots (tenant_id, key) values (old.tenant_id, old.key) on conflict do nothing;
end;

-- A key that was changed by hand goes on into the queue.
create trigger jobs_key_row after update of concurrency_key, max_concurrent on jobs
when old.status = new.status and new.concurrency_key is not null
  and (new.concurrency_key is not old.concurrency_key or new.max_concurrent is not old.max_concurrent)
begin
  update job_queue set tenant_id = new.tenant_id, concurrency_key = new.concurrency_key, max_concurrent = new.max_concurrent, held = 0
    where job_id = new.id;
end;

-- Jobs carry their keys into the queue: these are those of 0001 with the new columns -----------------------------------------

drop trigger jobs_born;
drop trigger jobs_born_ad_hoc;
drop trigger job_requeues_call;
drop trigger jobs_ended_unleased;
drop trigger job_waits_answered;
drop trigger jobs_touched;

create trigger jobs_born after insert on jobs
when new.run_at <> 0 and new.created_at <> 0 and new.updated_at <> 0 and new.lane <> ''
begin
  insert into job_events (job_id, version, created_at, type, to_status, payload)
    values (new.id, 1, new.created_at, 'job_created', 'PENDING', new.note);
  insert into job_queue (job_id, lane, kind, priority, run_at, deadline, tenant_id, concurrency_key, max_concurrent)
    values (new.id, new.lane, new.kind, new.priority, new.run_at, new.deadline,
      case when new.concurrency_key is not null then new.tenant_id end, new.concurrency_key, new.max_concurrent);
end;

-- An INSERT by ad-hoc SQL, which leaves some of them to us.
create trigger jobs_born_ad_hoc after insert on jobs
when new.run_at = 0 or new.created_at = 0 or new.updated_at = 0 or new.lane = ''
begin
  update jobs set
    run_at = case run_at when 0 then (select now from clock) else run_at end,
    created_at = case created_at when 0 then (select now from clock) else created_at end,
    updated_at = case updated_at when 0 then (select now from clock) else updated_at end,
    lane = case when lane <> '' then lane when tenant_id = 'default' then queue else tenant_id || ':' || queue end
  where id = new.id;
  insert into job_events (job_id, version, created_at, type, to_status, payload)
    select id, 1, created_at, 'job_created', 'PENDING', note from jobs where id = new.id;
  insert into job_queue (job_id, lane, kind, priority, run_at, deadline, tenant_id, concurrency_key, max_concurrent)
    select id, lane, kind, priority, run_at, deadline, case when concurrency_key is not null then tenant_id end, concurrency_key,
      max_concurrent from jobs where id = new.id;
end;

create trigger job_requeues_call instead of insert on job_requeues
begin
  insert into job_queue (job_id, lane, kind, priority, run_at, deadline, status, tenant_id, concurrency_key, max_concurrent)
    select new.id, new.lane, new.kind, new.priority, new.next_retry_at, new.deadline, new.status,
      case when j.concurrency_key is not null then j.tenant_id end, j.concurrency_key, j.max_concurrent
    from jobs j where j.id = new.id and new.status = 'RETRY'
    on conflict (job_id) do update set run_at = excluded.run_at, status = excluded.status;
  -- due at the earliest time of a wait or at the deadline; at once if a wait is answered or there is none at all. While it waits for
  -- code that fits, nothing else wakes it: the code that does not fit would be claimed over and over.
  insert into job_queue (job_id, lane, kind, priority, run_at, deadline, status, tenant_id, concurrency_key, max_concurrent)
    select new.id, new.lane, new.kind, new.priority, w.wake_at, new.deadline, new.status,
      case when j.concurrency_key is not null then j.tenant_id end, j.concurrency_key, j.max_concurrent from jobs j, (
      select case when count(case when kind = 'code' and answered_at is null then 1 end) > 0 then new.deadline
        when count(*) = 0 or count(answered_at) > 0 then new.at
        else min(coalesce(min(until), new.deadline), coalesce(new.deadline, min(until))) end as wake_at
      from job_waits where job_id = new.id) w
    where j.id = new.id and new.status <> 'RETRY' and w.wake_at is not null
    on conflict (job_id) do update set run_at = excluded.run_at, status = excluded.status;
end;

-- The end of a job, also one by ad-hoc SQL: finished_at is set exactly then. Each trigger first looks whether it has anything to
-- do: opening a table to write to it costs more than that.
create trigger jobs_ended_unleased after update of finished_at on jobs
when old.finished_at is null and new.finished_at is not null and old.status <> 'RUNNING' and old.status <> 'WAITING'
begin
  -- one that was let through for a free slot leaves it to the next of its key
  insert into freed_slots (tenant_id, key)
    select tenant_id, concurrency_key from job_queue where job_id = new.id and concurrency_key is not null and held = 0
    on conflict do nothing;
  delete from job_queue where job_id = new.id;
end;

create trigger job_waits_answered after update of answered_at on job_waits
when old.answered_at is null and new.answered_at is not null
begin
  insert into job_queue (job_id, lane, kind, priority, run_at, deadline, status, tenant_id, concurrency_key, max_concurrent)
    select j.id, j.lane, j.kind, j.priority, min(new.answered_at, (select now from clock)), j.deadline, j.status,
      case when j.concurrency_key is not null then j.tenant_id end, j.concurrency_key, j.max_concurrent from jobs j
    where j.id = new.job_id and j.status in ('PARKED', 'WAITING_FOR_APPROVAL') and not exists (
      select 1 from job_waits w where w.job_id = new.job_id and w.kind = 'code' and w.answered_at is null)
    on conflict (job_id) do update set run_at = min(job_queue.run_at, excluded.run_at);
end;

-- Something was changed by hand: every transition of perdure's own raises the version.
create trigger jobs_touched after update of queue, lane, priority, retry_count, max_retries, lost_starts, run_at, next_retry_at, deadline,
  started_at, finished_at, ran, pruned_at, idempotency_key, origin_id, origin_kind, error_kind, goal, note, error_message, result,
  concurrency_key, max_concurrent on jobs
when new.version = old.version and new.status = old.status and old.updated_at <> 0
begin
  select raise(abort, 'the result of a job that has ended cannot be rewritten')
    where old.finished_at is not null and new.result is not old.result and new.pruned_at is old.pruned_at;
  update jobs set updated_at = (select now from clock) where id = new.id and new.pruned_at is old.pruned_at
    and new.updated_at = old.updated_at and updated_at <> (select now from clock);
end;

-- Tasks wait for a slot of an account -----------------------------------------------------------------------------------------

alter table job_queue add column wanted_account text;
create index job_queue_accounts on job_queue (lane, kind, wanted_account, priority desc, run_at, job_id)
  where wanted_account is not null and held = 0;
create index tool_runs_session on tool_runs (tenant_id, session_id, finished_at) where session_id is not null;

-- The account that a task names, else that of the session it goes on with, else ''. A payload that cannot be read is left to the handler.
create view wanted_accounts as
  select j.id as job_id, substr(coalesce(nullif(j.payload ->> '$.account', 'auto'), (select r.account_id from tool_runs r
    where r.tenant_id = j.tenant_id and r.session_id = j.payload ->> '$.session' and r.account_id is not null
    order by r.finished_at desc limit 1), ''), 1, 200) as account
  from jobs j where json_valid(j.payload);

create trigger job_queue_task after insert on job_queue when new.kind glob 'cli.*'
begin
  update job_queue set wanted_account = coalesce((select account from wanted_accounts where job_id = new.job_id), '')
    where job_id = new.job_id;
end;
update job_queue set wanted_account = coalesce((select account from wanted_accounts w where w.job_id = job_queue.job_id), '')
  where kind glob 'cli.*';
