-- Children: jobs that a job has spawned, and its waits for their ends.
--
--   jobs               parent_id: the job that spawned it; never changes
--   awaited_jobs       transient: one row for each job that an open wait of kind `child` still waits for
--   cancelled_parents  transient: cancelled jobs whose children are yet to be cancelled; workers and clients empty it
--
-- The end of a job, whatever ends it, takes it out of awaited_jobs; the last one answers the wait. So a wait for 10,000 children
-- is answered once. All of this is looked at for jobs with a parent only. docs/design/0032-children.md says why no end is missed.

alter table perdure.jobs add column parent_id uuid;
create index jobs_parent on perdure.jobs (parent_id, id) where parent_id is not null;

create table perdure.awaited_jobs (
  job_id uuid not null,
  key text not null,
  child_id uuid not null,
  primary key (job_id, key, child_id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index awaited_jobs_child on perdure.awaited_jobs (child_id);

create table perdure.cancelled_parents (job_id uuid primary key, tenant_id text not null);
create index cancelled_parents_tenant on perdure.cancelled_parents (tenant_id, job_id);

-- Roles that may write the waits of jobs may write these.
do $$
declare
  r record;
begin
  for r in select case a.grantee when 0 then 'public' else a.grantee::regrole::text end as who,
      string_agg(a.privilege_type, ', ') as rights
    from pg_catalog.pg_class c cross join pg_catalog.aclexplode(c.relacl) a
    where c.oid = 'perdure.job_waits'::regclass and a.grantee <> c.relowner
      and a.privilege_type in ('SELECT', 'INSERT', 'UPDATE', 'DELETE') group by a.grantee loop
    execute format('grant %s on perdure.awaited_jobs, perdure.cancelled_parents to %s', r.rights, r.who);
  end loop;
end $$;

-- A wait that is closed waits for no job.
create function perdure.job_waits_child_closed() returns trigger language plpgsql set search_path = pg_catalog, pg_temp
  set enable_seqscan = off as $$
begin
  delete from perdure.awaited_jobs where job_id = old.job_id and key = old.key;
  return null;
end $$;
create trigger job_waits_child_closed after delete on perdure.job_waits for each row when (old.kind = 'child')
  execute function perdure.job_waits_child_closed();

-- The lock of a parent: the ends of its children share it, from before they look who waits for them until they have committed.
create function perdure.parent_lock(parent uuid) returns bigint language sql immutable set search_path = pg_catalog, pg_temp as $$
  select hashtextextended(parent::text, 40964104211)
$$;

-- After waits for children were opened, and that was committed: takes out what has ended, and answers those that wait for nothing more.
-- An end that did not see the wait, and has not committed yet, holds the lock of its parent: here it is waited for. Each statement has a
-- snapshot of its own, so what is read after the locks includes those ends. Later ends see the wait.
create function perdure.settle_waits(job_ids uuid[], keys text[]) returns void language plpgsql set search_path = pg_catalog, pg_temp
  set enable_seqscan = off as $$
begin
  perform pg_advisory_xact_lock(p.lock) from (
    select distinct perdure.parent_lock(j.parent_id) as lock from unnest(job_ids, keys) u(job_id, key)
    join perdure.awaited_jobs a on a.job_id = any (array[u.job_id]) and a.key = u.key
    join perdure.jobs j on j.id = any (array[a.child_id]) where j.parent_id is not null order by 1 offset 0) p;
  perform from perdure.job_waits w where w.job_id = any (job_ids) and w.kind = 'child' and w.key = any (keys)
    order by w.job_id, w.kind, w.key for no key update;
  delete from perdure.awaited_jobs a using unnest(job_ids, keys) u(job_id, key)
    where a.job_id = any (array[u.job_id]) and a.key = u.key
    and not exists (select from perdure.jobs j where j.id = a.child_id and j.finished_at is null offset 0);
  update perdure.job_waits w set answered_at = perdure.db_now() from unnest(job_ids, keys) u(job_id, key)
    where w.job_id = any (array[u.job_id]) and w.kind = 'child' and w.key = u.key and w.answered_at is null
    and not exists (select from perdure.awaited_jobs a where a.job_id = w.job_id and a.key = w.key offset 0);
end $$;

-- As in 0003, with children.
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
    bool_or(was <> became and became in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER') and child)
  into some_same, some_left, some_retry, some_suspended, some_ended, some_ended_unheld, some_failed, some_child_ended
  from (select prev_status as was, status as became, bool_or(parent_id is not null) as child from new_t group by 1, 2) pairs;
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

comment on column perdure.jobs.parent_id is 'The job that spawned it.';
comment on table perdure.awaited_jobs is 'The jobs that open waits of kind child still wait for.';
comment on column perdure.awaited_jobs.job_id is 'The job that waits.';
comment on column perdure.awaited_jobs.key is 'The key of its wait.';
comment on column perdure.awaited_jobs.child_id is 'The job that has not ended.';
comment on table perdure.cancelled_parents is 'Cancelled jobs whose children are yet to be cancelled; emptied all the time.';
comment on column perdure.cancelled_parents.job_id is 'The cancelled job.';
comment on column perdure.cancelled_parents.tenant_id is 'As in jobs.';
