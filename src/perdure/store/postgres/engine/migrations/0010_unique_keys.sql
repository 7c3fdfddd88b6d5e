-- Unique keys: at most one job of a kind has such a key while it is active, or for a period.
--
--   jobs           unique_key, unique_until: as it was enqueued; on_conflict: what is done where another job has the key
--   unique_keys    transient: one row for each key that is held; jobs without such a key have none
--
-- All of it is done by a trigger before the insert: so it holds for every way to enqueue, SQL typed by hand included. A job that is not
-- stored is skipped, as by `on conflict do nothing`. docs/design/0035-unique-keys.md says why this is right under concurrent enqueues.

alter table perdure.jobs add column unique_key text;
alter table perdure.jobs add column unique_until timestamptz;
alter table perdure.jobs add column on_conflict text;
alter table perdure.jobs add constraint jobs_unique_key check (unique_key is null
  or (length(unique_key) between 1 and 200 and idempotency_key is null));
alter table perdure.jobs add constraint jobs_unique_until check (unique_until is null or unique_key is not null);
alter table perdure.jobs add constraint jobs_on_conflict check (on_conflict is null or (unique_key is not null
  and on_conflict in ('return', 'replace', 'refuse') and (on_conflict <> 'replace' or unique_until is null)));

create table perdure.unique_keys (
  tenant_id text not null,
  kind text not null,
  key text not null,
  job_id uuid not null,
  until timestamptz,
  primary key (tenant_id, kind, key)
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
    execute format('grant %s on perdure.unique_keys to %s', r.rights, r.who);
  end loop;
end $$;

-- The payload of a job that has not started may be replaced, by a statement that also writes the event.
drop trigger jobs_c_payload on perdure.jobs;
create trigger jobs_c_payload before update of payload, payload_hash on perdure.jobs for each row
  when (new.payload_hash is distinct from old.payload_hash or (new.payload::text <> old.payload::text
    and (old.pruned_at is not null or new.pruned_at is null or new.payload::text <> 'null')
    and (old.status <> 'PENDING' or new.status <> 'PENDING' or new.version = old.version)))
  execute function perdure.jobs_reject_payload();

-- The key is taken by its row. Of two transactions that insert it at once, the second waits here until the first has ended. With the
-- rights of the schema's owner, as jobs_born.
create function perdure.jobs_unique() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp
  set enable_seqscan = off as $$
declare
  holder uuid;
  unlocked boolean;
begin
  if exists (select from perdure.jobs j where j.id = new.id) then
    return null;  -- stored before, by a call whose answer was lost
  end if;
  loop
    insert into perdure.unique_keys (tenant_id, kind, key, job_id, until)
      values (new.tenant_id, new.kind, new.unique_key, new.id, new.unique_until) on conflict do nothing;
    if found then
      return new;
    end if;
    update perdure.unique_keys k set job_id = new.id, until = new.unique_until
      where k.tenant_id = new.tenant_id and k.kind = new.kind and k.key = new.unique_key and k.until <= perdure.db_now();
    if found then
      return new;
    elsif new.on_conflict is distinct from 'replace' then
      return null;
    end if;
    select k.job_id into holder from perdure.unique_keys k
      where k.tenant_id = new.tenant_id and k.kind = new.kind and k.key = new.unique_key for no key update;
    continue when not found;  -- freed meanwhile
    -- One that is locked is being edited, started or ended. It is looked at again for a moment, and not waited for, as whatever ends
    -- it waits for the row of the key.
    for look in 1..50 loop
      perform from perdure.jobs j where j.id = holder and j.status = 'PENDING' for no key update skip locked;
      unlocked := found;
      exit when unlocked or not exists (select from perdure.jobs j where j.id = holder and j.status = 'PENDING');
      perform pg_sleep(0.002);
    end loop;
    if unlocked then
      insert into perdure.job_events (job_id, version, type, payload)
        select j.id, j.version + 1, 'job_replaced', new.note from perdure.jobs j where j.id = holder;
      update perdure.jobs j set payload = new.payload, goal = new.goal, run_at = new.run_at, priority = new.priority,
          deadline = new.deadline, max_retries = new.max_retries, updated_at = perdure.db_now(), version = j.version + 1,
          prev_status = j.status where j.id = holder;
      update perdure.job_queue q set run_at = new.run_at where q.job_id = holder;
      return null;
    end if;
    -- It has started, and goes on without the key.
    update perdure.unique_keys k set job_id = new.id, until = new.unique_until
      where k.tenant_id = new.tenant_id and k.kind = new.kind and k.key = new.unique_key;
    return new;
  end loop;
end $$;
create trigger jobs_unique before insert on perdure.jobs for each row when (new.unique_key is not null)
  execute function perdure.jobs_unique();

-- As in 0005, with unique keys.
create or replace function perdure.jobs_moved() returns trigger language plpgsql set search_path = pg_catalog, pg_temp
  set enable_seqscan = off as $$
declare
  some_same boolean;
  some_left boolean;
  some_retry boolean;
  some_suspended boolean;
  some_ended boolean;
  some_ended_unheld boolean;
  some_failed boolean;
  some_child_ended boolean;
  some_unique_ended boolean;
  waiting_jobs uuid[];
  waiting_keys text[];
begin
  -- What kinds of changes there are: of the few different pairs, not of each row.
  select bool_or(was = became),
    bool_or(was in ('RUNNING', 'WAITING') and became not in ('RUNNING', 'WAITING')),
    bool_or(was <> became and became = 'RETRY'),
    bool_or(was <> became and became in ('PARKED', 'WAITING_FOR_APPROVAL')),
    bool_or(was <> became and became in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER')),
    bool_or(was <> became and became in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER') and was not in ('RUNNING', 'WAITING')),
    bool_or(was <> became and became in ('FAILED', 'DEADLETTER', 'CANCELLED')),
    bool_or(was <> became and became in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER') and child),
    bool_or(was <> became and became in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER') and keyed)
  into some_same, some_left, some_retry, some_suspended, some_ended, some_ended_unheld, some_failed, some_child_ended,
    some_unique_ended
  from (select prev_status as was, status as became, bool_or(parent_id is not null) as child,
    bool_or(unique_key is not null) as keyed from new_t group by 1, 2) pairs;
  if some_same is null then  -- no row at all
    return null;
  end if;

  insert into perdure.job_events (job_id, version, type, from_status, to_status, attempt, ran, payload)
    select id, version, case status
        when 'RUNNING' then case when prev_status = 'WAITING' then 'job_resumed' else 'run_started' end
        when 'COMPLETED' then 'job_completed' when 'FAILED' then 'job_failed' when 'CANCELLED' then 'job_cancelled'
        when 'DEADLETTER' then 'job_deadlettered' when 'RETRY' then 'job_retrying' when 'WAITING' then 'job_waiting'
        when 'PARKED' then 'job_parked' when 'WAITING_FOR_APPROVAL' then 'job_waiting_for_approval' end,
      prev_status, status, attempt, case when status = 'COMPLETED' then ran end, note
    from new_t where prev_status <> status;

  if some_same then
    -- a version may only move together with its event
    if exists (select 1 from new_t n where n.prev_status = n.status and not exists (
        select 1 from perdure.job_events e where e.job_id = n.id and e.version = n.version offset 0)) then
      raise exception 'jobs.version moved without an event' using errcode = '23514';
    end if;
    update perdure.job_queue q set priority = n.priority, lane = n.lane, deadline = n.deadline from new_t n
      where q.job_id = any (array (select id from new_t)) and q.job_id = n.id and n.prev_status = n.status
      and (q.priority <> n.priority or q.lane <> n.lane or q.deadline is distinct from n.deadline);
    update perdure.job_queue q set tenant_id = n.tenant_id, concurrency_key = n.concurrency_key,
        max_concurrent = n.max_concurrent, held = false from new_t n
      where q.job_id = any (array (select id from new_t where concurrency_key is not null)) and q.job_id = n.id
      and n.prev_status = n.status
      and (q.concurrency_key is distinct from n.concurrency_key or not q.held and q.max_concurrent is distinct from n.max_concurrent);
  end if;
  if some_left and exists (select 1 from perdure.job_claims k where k.job_id = any (array (select id from new_t
      where prev_status in ('RUNNING', 'WAITING') and status not in ('RUNNING', 'WAITING')))) then
    raise exception 'a job cannot leave RUNNING or WAITING while its claim is present' using errcode = '23514';
  end if;
  if some_retry then
    insert into perdure.job_queue (job_id, lane, kind, priority, run_at, deadline, status, tenant_id, concurrency_key,
        max_concurrent)
      select id, lane, kind, priority, next_retry_at, deadline, status, case when concurrency_key is not null then tenant_id end,
        concurrency_key, max_concurrent from new_t where prev_status <> status and status = 'RETRY'
      on conflict (job_id) do update set run_at = excluded.run_at, status = excluded.status;
  end if;
  if some_child_ended then
    perform pg_advisory_xact_lock_shared(p.lock) from (select distinct perdure.parent_lock(parent_id) as lock from new_t
      where parent_id is not null and prev_status <> status and status in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER')
      order by 1 offset 0) p;
    -- The waits that these ends may answer, and those of jobs that are suspended here: all in one order.
    perform from perdure.job_waits where job_id = any (array (
      select id from new_t where prev_status <> status and status in ('PARKED', 'WAITING_FOR_APPROVAL')
      union all
      select a.job_id from perdure.awaited_jobs a where a.child_id = any (array (select id from new_t
        where parent_id is not null and prev_status <> status and status in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER')))))
      order by job_id, kind, key for no key update;
    -- Every end writes the row of the wait, also one that does not answer it: so of two ends at the same time the second
    -- sees the first, at any isolation level.
    with gone as (
      delete from perdure.awaited_jobs where child_id = any (array (select id from new_t
        where parent_id is not null and prev_status <> status and status in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER')))
      returning job_id, key
    )
    select array_agg(distinct g.job_id), array_agg(distinct g.key) into waiting_jobs, waiting_keys from gone g;
    if waiting_jobs is not null then
      -- The newest child first: it is likely to end last, so the look is short. (An `exists` would drop the order.)
      update perdure.job_waits w set answered_at = case when (select true from perdure.awaited_jobs a
          where a.job_id = w.job_id and a.key = w.key order by a.child_id desc limit 1) is null then perdure.db_now() end
        where w.job_id = any (waiting_jobs) and w.kind = 'child' and w.key = any (waiting_keys) and w.answered_at is null;
    end if;
  elsif some_suspended then
    -- An answer given in this moment comes first and is seen below, or comes after, and then it finds the job suspended.
    perform from perdure.job_waits where job_id = any (array (select id from new_t
      where prev_status <> status and status in ('PARKED', 'WAITING_FOR_APPROVAL'))) order by job_id, kind, key for share;
  end if;
  if some_suspended then
    -- Due at the earliest time of a wait or at the deadline; at once if a wait is answered or there is none at all. While it waits for
    -- code that fits, nothing else wakes it: the code that does not fit would be claimed over and over.
    -- A statement of its own: it sees answers committed while the statements before it waited for their locks.
    insert into perdure.job_queue (job_id, lane, kind, priority, run_at, deadline, status, tenant_id, concurrency_key,
        max_concurrent)
      select n.id, n.lane, n.kind, n.priority, w.wake_at, n.deadline, n.status,
        case when n.concurrency_key is not null then n.tenant_id end, n.concurrency_key, n.max_concurrent
      from new_t n, lateral (
        select case
          when bool_or(w.kind = 'code' and w.answered_at is null) then n.deadline
          when count(*) = 0 or bool_or(w.answered_at is not null) then perdure.db_now()
          else least(min(w.until), n.deadline) end as wake_at
        from perdure.job_waits w where w.job_id = n.id) w
      where n.prev_status <> n.status and n.status in ('PARKED', 'WAITING_FOR_APPROVAL') and w.wake_at is not null
      on conflict (job_id) do update set run_at = excluded.run_at, status = excluded.status;
  end if;
  if some_ended then
    -- Before their places in the queue: an answer takes the lock of the wait, and then that of the queue row.
    delete from perdure.job_waits where job_id = any (array (select id from new_t
      where prev_status <> status and status in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER')));
    update perdure.approvals set status = 'CANCELLED', decided_at = perdure.db_now(), decided_via = 'system',
        comment = 'its job ended'
      where status = 'PENDING' and job_id = any (array (select id from new_t
        where prev_status <> status and status in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER')));
  end if;
  if some_ended_unheld then
    -- One that was let through for a free slot leaves it to the next of its key.
    with gone as (
      delete from perdure.job_queue where job_id = any (array (select id from new_t
        where prev_status not in ('RUNNING', 'WAITING') and prev_status <> status
        and status in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER')))
      returning tenant_id, concurrency_key, held
    )
    insert into perdure.freed_slots (tenant_id, key)
      select distinct tenant_id, concurrency_key from gone where concurrency_key is not null and not held;
  end if;
  if some_unique_ended then
    delete from perdure.unique_keys k using (select tenant_id, kind, unique_key, id from new_t where unique_key is not null
        and prev_status <> status and status in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER') offset 0) n
      where k.tenant_id = any (array[n.tenant_id]) and k.kind = any (array[n.kind]) and k.key = any (array[n.unique_key])
      and k.job_id = n.id and k.until is null;
  end if;
  if some_failed then
    insert into perdure.job_failures (job_id, status, finished_at)
      select id, status, finished_at from new_t where prev_status <> status and status in ('FAILED', 'DEADLETTER', 'CANCELLED');
    insert into perdure.cancelled_parents (job_id, tenant_id)
      select n.id, n.tenant_id from new_t n where n.prev_status <> n.status and n.status = 'CANCELLED' and exists (
        select from perdure.jobs c where c.parent_id = n.id and c.finished_at is null offset 0)
      on conflict do nothing;
  end if;
  return null;
end $$;

-- Which job has the key, for roles that may not read the table.
create function perdure.unique_holder(tenant text, kind text, key text) returns uuid language sql stable security definer
  set search_path = pg_catalog, pg_temp as $$
  select k.job_id from perdure.unique_keys k where k.tenant_id = $1 and k.kind = $2 and k.key = $3
$$;

comment on column perdure.jobs.unique_key is 'At most one job of its kind has it while it is active, or until unique_until.';
comment on column perdure.jobs.unique_until is 'Until when it has the key; null: until its end.';
comment on column perdure.jobs.on_conflict is 'What its enqueueing does where another job has the key: return, replace or refuse.';
comment on table perdure.unique_keys is 'Which job has which unique key.';
comment on column perdure.unique_keys.tenant_id is 'As in jobs.';
comment on column perdure.unique_keys.kind is 'As in jobs.';
comment on column perdure.unique_keys.key is 'The key.';
comment on column perdure.unique_keys.job_id is 'The job that has it.';
comment on column perdure.unique_keys.until is 'Until when; null: until the end of the job.';
