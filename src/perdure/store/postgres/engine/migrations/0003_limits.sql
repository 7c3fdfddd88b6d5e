-- Limits: how many jobs of one concurrency key run at a time.
--
--   jobs           concurrency_key, and max_concurrent where its caller gave one (else the handler's counts, at each claim)
--   job_queue      the same, with the tenant; held: it waits for a slot of its key, and no claim reads it
--   job_claims     the key whose slot the lease holds: the slots in use are these rows, there is no counter
--   limits         what an operator has set by hand; it wins over code
--   freed_slots    keys of which a slot became free, or may have: release_held looks at them
--   concurrency_limits   a view: besides accounts now each key in use or set, its maximum, and its live leases
--   wanted_account of job_queue   of tasks only: what the claim of a free account looks for
--
-- Jobs without a key are claimed as before. Those with one are only found by the claim; claim_limited then takes or holds them.
-- docs/design/0029-concurrency-limits.md says why no wake-up is lost.

alter table perdure.jobs add column concurrency_key text, add column max_concurrent int,
  add constraint jobs_concurrency_key check (length(concurrency_key) between 1 and 200),
  add constraint jobs_max_concurrent check (max_concurrent is null or max_concurrent >= 1 and concurrency_key is not null);
alter table perdure.job_queue add column tenant_id text, add column concurrency_key text, add column max_concurrent int,
  add column held boolean not null default false;
alter table perdure.job_claims add column concurrency_key text, add column max_concurrent int;

drop index perdure.job_queue_ready;
create index job_queue_ready on perdure.job_queue (lane, kind, priority, run_at, job_id) where not held;
create index job_queue_keyed on perdure.job_queue (tenant_id, concurrency_key, held, lane, kind, priority desc, run_at, job_id)
  where concurrency_key is not null;
create index job_claims_keyed on perdure.job_claims (tenant_id, concurrency_key) where concurrency_key is not null;

create table perdure.limits (
  tenant_id text not null default 'default',
  key text not null,
  max int not null,
  set_at timestamptz not null default perdure.db_now(),
  set_by text not null default session_user,
  primary key (tenant_id, key),
  constraint limits_key check (length(key) between 1 and 200),
  constraint limits_max check (max >= 0)
);

-- Without a unique index: an end that writes here waits for no other.
create table perdure.freed_slots (tenant_id text not null, key text not null)
  with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index freed_slots_tenant on perdure.freed_slots (tenant_id);

create or replace view perdure.concurrency_limits as
  select 'account:' || a.id as scope, a.max_concurrency as max_concurrent, (select count(*) from perdure.job_claims k
    where k.tenant_id = a.tenant_id and k.account_id = a.id and k.expires_at > perdure.db_now())::int as current_concurrent,
    a.tenant_id
  from perdure.accounts a
  union all
  select l.key, l.max, (select count(*) from perdure.job_claims k where k.tenant_id = l.tenant_id and k.concurrency_key = l.key)::int, l.tenant_id
  from perdure.limits l
  union all
  select k.concurrency_key, max(k.max_concurrent), count(*)::int, k.tenant_id from perdure.job_claims k
  where k.concurrency_key is not null
    and not exists (select 1 from perdure.limits l where l.tenant_id = k.tenant_id and l.key = k.concurrency_key)
  group by k.tenant_id, k.concurrency_key;

-- Roles that may write the other tables may write these.
do $$
declare
  r record;
begin
  for r in select case a.grantee when 0 then 'public' else a.grantee::regrole::text end as who,
      string_agg(a.privilege_type, ', ') as rights
    from pg_catalog.pg_class c cross join pg_catalog.aclexplode(c.relacl) a
    where c.oid = 'perdure.job_claims'::regclass and a.grantee <> c.relowner
      and a.privilege_type in ('SELECT', 'INSERT', 'UPDATE', 'DELETE') group by a.grantee loop
    execute format('grant %s on perdure.limits, perdure.freed_slots to %s', r.rights, r.who);
  end loop;
  for r in select distinct case a.grantee when 0 then 'public' else a.grantee::regrole::text end as who
    from pg_catalog.pg_attribute c cross join pg_catalog.aclexplode(c.attacl) a
    where c.attrelid = 'perdure.jobs'::regclass and c.attname = 'goal' and a.privilege_type = 'INSERT' loop
    execute format('grant insert (concurrency_key, max_concurrent) on perdure.jobs to %s', r.who);
  end loop;
end $$;

-- The end of a lease frees its slot, whatever ended it. It takes no lock of the key: ends never wait for each other.
create function perdure.slot_freed() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into perdure.freed_slots (tenant_id, key) values (old.tenant_id, old.concurrency_key);
  return null;
end $$;
create trigger job_claims_freed after delete on perdure.job_claims for each row when (old.concurrency_key is not null)
  execute function perdure.slot_freed();
-- A limit that was set, raised or removed: those that it held are looked at again.
create function perdure.limit_changed() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into perdure.freed_slots (tenant_id, key) values (coalesce(new.tenant_id, old.tenant_id), coalesce(new.key, old.key));
  return null;
end $$;
create trigger limits_changed after insert or update or delete on perdure.limits for each row
  execute function perdure.limit_changed();

-- What takes, holds or releases jobs of a key has this lock until the end of the transaction. Two keys may share a lock.
create function perdure.lock_key(tenant text, its_key text) returns void language sql volatile set search_path = pg_catalog, pg_temp as $$
  select pg_advisory_xact_lock(hashtextextended(tenant || ':' || its_key, 31640396229))
$$;

-- Lets held jobs of a key go on, as many as there are free slots, in the order of a claim; the caller has its lock, and this is a
-- statement of its own, whose snapshot sees every end that was committed before the lock was taken. For each lane and kind
-- by itself: a job whose kind no worker runs must not stand before others. Those let through before and not yet
-- taken count. Returns how many were released.
create function perdure.release_key(tenant text, its_key text) returns int language plpgsql set search_path = pg_catalog, pg_temp
  set enable_seqscan = off as $$
declare
  live constant int := (select count(*) from perdure.job_claims k where k.tenant_id = tenant and k.concurrency_key = its_key);
  by_hand constant int := (select l.max from perdure.limits l where l.tenant_id = tenant and l.key = its_key);
  starts constant int := perdure.starts_left(tenant, its_key);  -- see 0019; null: it has no rate
  place record;
  top int;
  room int;
  changed int;
  total int := 0;
begin
  if starts = 0 then
    update perdure.rates r set wake_at = coalesce(perdure.next_start(tenant, its_key), perdure.db_now())
      where r.tenant_id = tenant and r.key = its_key;
    return 0;
  end if;
  for place in
    with recursive places as (
      (select q.lane, q.kind from perdure.job_queue q where q.tenant_id = tenant and q.concurrency_key = its_key and q.held
        order by q.lane, q.kind limit 1)
      union all
      select n.lane, n.kind from places p cross join lateral (
        select q.lane, q.kind from perdure.job_queue q where q.tenant_id = tenant and q.concurrency_key = its_key and q.held
          and (q.lane, q.kind) > (p.lane, p.kind) order by q.lane, q.kind limit 1) n
    )
    select p.lane, p.kind from places p
  loop
    top := coalesce(by_hand, (select q.max_concurrent from perdure.job_queue q where q.tenant_id = tenant
      and q.concurrency_key = its_key and q.held and q.lane = place.lane and q.kind = place.kind
      order by q.priority desc, q.run_at, q.job_id limit 1));
    room := least(coalesce(top - live, 1000), starts);
    if room <= 0 then
      continue;
    end if;
    room := room - (select count(*) from (select from perdure.job_queue q where q.tenant_id = tenant and q.concurrency_key = its_key
      and not q.held and q.lane = place.lane and q.kind = place.kind and q.run_at <= perdure.db_now() limit room) ready);
    if room <= 0 then
      continue;
    end if;
    update perdure.job_queue set held = false where job_id = any (array (
      select q.job_id from perdure.job_queue q where q.tenant_id = tenant and q.concurrency_key = its_key and q.held
        and q.lane = place.lane and q.kind = place.kind
      order by q.priority desc, q.run_at, q.job_id limit room for update skip locked));
    get diagnostics changed = row_count;
    total := total + changed;
    if changed < room and exists (select from perdure.job_queue q where q.tenant_id = tenant and q.concurrency_key = its_key and q.held
        and q.lane = place.lane and q.kind = place.kind) then
      insert into perdure.freed_slots (tenant_id, key) values (tenant, its_key);  -- another session has locked one: again later
    end if;
  end loop;
  return total;
end $$;

-- Looks at the keys of freed_slots, at most so many rows of it. Returns how many jobs were released.
create function perdure.release_held(tenant text, most int) returns int language plpgsql set search_path = pg_catalog, pg_temp
  set enable_seqscan = off as $$
declare
  names text[];
  name text;
  total int := 0;
begin
  with gone as (
    delete from perdure.freed_slots where ctid = any (array (
      select f.ctid from perdure.freed_slots f where f.tenant_id = tenant limit most for update skip locked)) returning key
  )
  select array_agg(distinct s.key) into names from gone s;
  with due as (
    update perdure.rates set wake_at = null where (tenant_id, key) in (
      select r.tenant_id, r.key from perdure.rates r where r.tenant_id = tenant and r.wake_at <= perdure.db_now()
      limit most for update skip locked) returning key
  )
  select array_agg(distinct n.key order by n.key) into names from (
    select unnest(names) as key union all select key from due) n;
  foreach name in array coalesce(names, '{}') loop
    perform perdure.lock_key(tenant, name);
    total := total + perdure.release_key(tenant, name);
  end loop;
  return total;
end $$;

-- The second half of a claim: of the jobs that the first half found (picked), take those whose keys have a free slot, and hold the
-- others. keys, maxes: the constant key and the maximum of the handler of each kind, null where it has none. Only the keys of `picked`
-- matter: of each, the first jobs in the order of a claim are taken, held or not, so that none overtakes another of its key.
-- The count of live leases is made after the lock is taken, in a statement of its own: one that had waited for the lock would
-- count in a snapshot of before. alone: take none but those of `picked`.
create function perdure.claim_limited(tenant text, its_lane text, its_queue text, picked uuid[], kinds text[], retries smallint[],
  keys text[], maxes int[], worker text, lease_ttl interval, claim_note json, most int, alone boolean)
returns table (id uuid, attempt int, kind text, payload json, priority smallint, version int, more json, waited float8, claimed_at int8)
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  names text[];
  name text;
  by_hand int;
  live int;
  starts int;
  before int;
  top int;
  its_kinds text[];
  one record;
  taken uuid[] := '{}';
  slots text[] := '{}';
  tops int[] := '{}';
  due timestamptz[] := '{}';
begin
  -- Jobs whose callers gave no key get that of their handler, and with them those of their kind that stand behind.
  if exists (select from unnest(keys) k(key) where k.key is not null) then
    update perdure.job_queue q set tenant_id = tenant, concurrency_key = k.key, max_concurrent = k.max
    from unnest(kinds, keys, maxes) k(kind, key, max)
    where q.kind = k.kind and k.key is not null and q.job_id = any (array (
      select w.job_id from perdure.job_queue w where w.job_id = any (picked) and w.concurrency_key is null for update skip locked));
    if found and not alone then
      update perdure.job_queue q set tenant_id = tenant, concurrency_key = k.key, max_concurrent = k.max
      from unnest(kinds, keys, maxes) k(kind, key, max)
      where q.kind = k.kind and q.job_id = any (array (
        select w.job_id from unnest(kinds, keys) n(kind, key) cross join generate_series(9, 1, -1) p(priority) cross join lateral (
          select f.job_id from perdure.job_queue f where f.lane = its_lane and f.kind = n.kind and f.priority = p.priority::smallint
            and not f.held and f.run_at <= perdure.db_now() and f.concurrency_key is null
          order by f.run_at, f.job_id limit 500 for update skip locked) w
        where n.key is not null limit 500));
    end if;
  end if;
  names := array (select distinct q.concurrency_key from perdure.job_queue q
    where q.job_id = any (picked) and q.concurrency_key is not null and not q.held order by 1);
  foreach name in array names loop
    perform perdure.lock_key(tenant, name);
  end loop;
  foreach name in array names loop
    by_hand := (select l.max from perdure.limits l where l.tenant_id = tenant and l.key = name);
    live := (select count(*) from perdure.job_claims k where k.tenant_id = tenant and k.concurrency_key = name);
    starts := perdure.starts_left(tenant, name);  -- see 0019; null: it has no rate
    before := cardinality(taken);
    -- top: the highest maximum among those that were found; null for none
    select array_agg(distinct q.kind),
        coalesce(by_hand, case when count(*) = count(coalesce(j.max_concurrent, k.max)) then max(coalesce(j.max_concurrent, k.max)) end)
      into its_kinds, top
      from perdure.job_queue q join perdure.jobs j on j.id = any (array[q.job_id])
      left join unnest(kinds, maxes) k(kind, max) on k.kind = q.kind
      where q.job_id = any (picked) and q.concurrency_key = name and not q.held;
    for one in
      select c.job_id, c.run_at, c.max from (
        select d.*, row_number() over (order by d.priority desc, d.run_at, d.job_id) as place from (
          select x.* from unnest(kinds, maxes) k(kind, max) cross join (values (false), (true)) h(held) cross join lateral (
            select q.job_id, q.priority, q.run_at, coalesce(by_hand, j.max_concurrent, k.max) as max
            from perdure.job_queue q join perdure.jobs j on j.id = any (array[q.job_id])
            where q.tenant_id = tenant and q.concurrency_key = name and q.held = h.held and q.lane = its_lane and q.kind = k.kind
              and q.run_at <= perdure.db_now() and j.tenant_id = tenant and j.kind = any (array[q.kind])
              and (not alone or q.job_id = any (picked))
            order by q.priority desc, q.run_at, q.job_id
            limit greatest(0, least(most - cardinality(taken), top - live, starts)) for update of q, j skip locked) x
          where k.kind = any (its_kinds)) d) c
      where c.max is null or live + c.place <= c.max
      order by c.place limit least(most - cardinality(taken), starts)
    loop
      taken := taken || one.job_id;
      slots := slots || name;  -- the key itself: what lets a job take its slot of one of several others chooses here
      tops := tops || one.max;
      due := due || one.run_at;
      live := live + 1;
    end loop;
    if starts is not null then
      if cardinality(taken) > before then
        insert into perdure.key_starts (tenant_id, key, number) values (tenant, name, cardinality(taken) - before);
        -- Of any key: one of which no job starts again would keep its rows.
        delete from perdure.key_starts s where s.ctid = any (array (select o.ctid from perdure.key_starts o
          where o.tenant_id = tenant and o.at < perdure.db_now() - interval '2 minutes' order by o.at limit 100 for update skip locked));
        starts := starts - (cardinality(taken) - before);
      end if;
      if starts = 0 then
        update perdure.rates r set wake_at = perdure.next_start(tenant, name) where r.tenant_id = tenant and r.key = name;
      end if;
    end if;
    -- What is left of a full key is held, those that were not found as well, so that they are not found one by one.
    update perdure.job_queue q set held = true, max_concurrent = d.max from (
      select c.job_id, c.max, row_number() over (order by c.priority desc, c.run_at, c.job_id) as place from (
        select x.* from unnest(kinds, maxes) k(kind, max) cross join lateral (
          select q.job_id, q.priority, q.run_at, coalesce(j.max_concurrent, k.max) as max
          from perdure.job_queue q join perdure.jobs j on j.id = any (array[q.job_id])
          where q.tenant_id = tenant and q.concurrency_key = name and not q.held and q.lane = its_lane and q.kind = k.kind
            and q.run_at <= perdure.db_now() and not q.job_id = any (taken)
          order by q.priority desc, q.run_at, q.job_id limit 1000 for update of q skip locked) x
        where k.kind = any (its_kinds)) c) d
    where q.job_id = d.job_id and (live + d.place > coalesce(by_hand, d.max) or d.place > starts);
  end loop;
  delete from perdure.job_queue q where q.job_id = any (taken);
  return query
  with moved as (
    update perdure.jobs j set status = 'RUNNING', prev_status = j.status, version = j.version + 1, attempt = j.attempt + 1,
      next_retry_at = null, started_at = coalesce(j.started_at, perdure.db_now()), updated_at = perdure.db_now(),
      max_retries = coalesce(j.max_retries, greatest(k.max_retries, j.retry_count)), note = claim_note,
      concurrency_key = coalesce(j.concurrency_key, t.slot)
    from unnest(taken, slots, tops, due) t(job_id, slot, top, due) cross join unnest(kinds, retries) k(kind, max_retries)
    where j.id = any (array[t.job_id]) and k.kind = j.kind and j.status in ('PENDING', 'RETRY', 'PARKED', 'WAITING_FOR_APPROVAL')
    returning j.id, j.attempt, j.kind, j.payload, j.priority, j.version, t.due, t.slot, t.top, json_build_array(j.queue, j.goal,
      j.retry_count, j.max_retries, j.lost_starts, j.suspicion, j.idempotency_key,
      case when j.deadline is not null then
      (extract(epoch from least(greatest(j.deadline, '0002-01-01 UTC'), '9998-12-31 UTC')) * 1000000)::int8 end,
      t.slot) as more
  ), leased as (
    insert into perdure.job_claims (job_id, tenant_id, attempt, version, worker_id, ttl, expires_at, concurrency_key, max_concurrent)
    select m.id, tenant, m.attempt, m.version, worker, lease_ttl, perdure.db_now() + lease_ttl, m.slot, m.top from moved m
  )
  select m.id, m.attempt, m.kind, m.payload, m.priority, m.version, m.more,
    extract(epoch from perdure.db_now() - greatest(m.due, '0002-01-01 UTC'))::float8,
    (extract(epoch from perdure.db_now()) * 1000000)::int8
  from moved m order by m.priority desc, m.due, m.id;
  if exists (select from unnest(slots) s(slot) where starts_with(s.slot, 'agent:')) then
    perform perdure.give_agent_signals(taken);  -- see 0015
  end if;
  -- The claim could take fewer than the key has slots: other workers may take the next ones.
  if cardinality(taken) = most then
    foreach name in array names loop
      perform perdure.release_key(tenant, name);
    end loop;
  end if;
end $$;

-- Every key that has held jobs is looked at again: for what no trigger saw.
create function perdure.recheck_held(tenant text) returns int language plpgsql set search_path = pg_catalog, pg_temp
  set enable_seqscan = off as $$
declare
  changed int;
begin
  insert into perdure.freed_slots (tenant_id, key)
  with recursive names as (
    (select q.concurrency_key as key from perdure.job_queue q where q.tenant_id = tenant and q.concurrency_key is not null
      order by q.concurrency_key limit 1)
    union all
    select n.key from names m cross join lateral (
      select q.concurrency_key as key from perdure.job_queue q where q.tenant_id = tenant and q.concurrency_key > m.key
      order by q.concurrency_key limit 1) n
  )
  select tenant, n.key from names n where exists (
    select from perdure.job_queue q where q.tenant_id = tenant and q.concurrency_key = n.key and q.held);
  get diagnostics changed = row_count;
  return changed;
end $$;

-- Jobs carry their keys into the queue: these three are those of 0001 with the new columns -----------------------------------

create or replace function perdure.jobs_born() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if exists (select from new_t where least(run_at, deadline, created_at, updated_at, started_at) < '0002-01-01 00:00 UTC'
      or greatest(run_at, deadline, created_at, updated_at, started_at) > '9999-01-01 00:00 UTC') then
    raise exception 'a time of a job must be of the years 2 to 9998' using errcode = '23514';
  end if;
  insert into perdure.job_events (job_id, version, created_at, type, to_status, payload)
    select id, 1, created_at, 'job_created', status, note from new_t;
  insert into perdure.job_queue (job_id, lane, kind, priority, run_at, deadline, tenant_id, concurrency_key, max_concurrent)
    select id, lane, kind, priority, run_at, deadline, case when concurrency_key is not null then tenant_id end, concurrency_key,
      max_concurrent from new_t;
  return null;
end $$;

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
begin
  -- What kinds of changes there are: of the few different pairs, not of each row.
  select bool_or(was = became),
    bool_or(was in ('RUNNING', 'WAITING') and became not in ('RUNNING', 'WAITING')),
    bool_or(was <> became and became = 'RETRY'),
    bool_or(was <> became and became in ('PARKED', 'WAITING_FOR_APPROVAL')),
    bool_or(was <> became and became in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER')),
    bool_or(was <> became and became in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER') and was not in ('RUNNING', 'WAITING')),
    bool_or(was <> became and became in ('FAILED', 'DEADLETTER', 'CANCELLED'))
  into some_same, some_left, some_retry, some_suspended, some_ended, some_ended_unheld, some_failed
  from (select distinct prev_status as was, status as became from new_t) pairs;
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
  if some_suspended then
    -- An answer given in this moment comes first and is seen below, or comes after, and then it finds the job suspended.
    perform from perdure.job_waits where job_id = any (array (select id from new_t
      where prev_status <> status and status in ('PARKED', 'WAITING_FOR_APPROVAL'))) order by job_id, kind, key for share;
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
  if some_ended then
    delete from perdure.job_waits where job_id = any (array (select id from new_t
      where prev_status <> status and status in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER')));
    update perdure.approvals set status = 'CANCELLED', decided_at = perdure.db_now(), decided_via = 'system',
        comment = 'its job ended'
      where status = 'PENDING' and job_id = any (array (select id from new_t
        where prev_status <> status and status in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER')));
  end if;
  if some_failed then
    insert into perdure.job_failures (job_id, status, finished_at)
      select id, status, finished_at from new_t where prev_status <> status and status in ('FAILED', 'DEADLETTER', 'CANCELLED');
  end if;
  return null;
end $$;

create or replace function perdure.job_waits_answered() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  insert into perdure.job_queue (job_id, lane, kind, priority, run_at, deadline, status, tenant_id, concurrency_key, max_concurrent)
    select j.id, j.lane, j.kind, j.priority, least(new.answered_at, perdure.db_now()), j.deadline, j.status,
      case when j.concurrency_key is not null then j.tenant_id end, j.concurrency_key, j.max_concurrent from perdure.jobs j
    where j.id = new.job_id and j.status in ('PARKED', 'WAITING_FOR_APPROVAL') and not exists (
      select 1 from perdure.job_waits w where w.job_id = new.job_id and w.kind = 'code' and w.answered_at is null)
    on conflict (job_id) do update set run_at = least(perdure.job_queue.run_at, excluded.run_at);
  return null;
end $$;

-- Enqueueing from SQL takes them as well ---------------------------------------------------------------------------------

drop function perdure.enqueue(text, text, text, int, interval, timestamptz, timestamptz, text, int, text, text);
drop function perdure.enqueue(text, json, text, int, interval, timestamptz, timestamptz, text, int, text, text);
drop function perdure.enqueue(text, jsonb, text, int, interval, timestamptz, timestamptz, text, int, text, text);

create function perdure.enqueue(
  kind text, payload text default 'null', queue text default 'default', priority int default 5, delay interval default null,
  run_at timestamptz default null, deadline timestamptz default null, idempotency_key text default null,
  max_retries int default null, goal text default null, tenant text default 'default',
  concurrency_key text default null, max_concurrent int default null
) returns uuid language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp as $$
declare
  -- what Python's isprintable() refuses: control and format characters, blanks other than the space, private use
  unprintable constant text := '[\u0001-\u001f\u007f-\u00a0\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u1680'
    '\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ue000-\uf8ff\ufeff\ufff9-\ufffb'
    '\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001-\U000e007f'
    '\U000f0000-\U0010ffff]';
  job constant uuid := perdure.uuid7();
  first constant timestamptz := '0002-01-01 00:00 UTC';
  last constant timestamptz := '9999-01-01 00:00 UTC';
  hash text;
  found_id uuid;
  found_same boolean;
begin
  payload := coalesce(payload, 'null');
  queue := coalesce(queue, 'default');
  priority := coalesce(priority, 5);
  tenant := coalesce(tenant, 'default');
  if kind is null or length(kind) not between 1 and 200 or kind ~ unprintable then
    raise exception 'a handler''s name is 1 to 200 printable characters, got %', quote_nullable(left(kind, 250))
      using errcode = '22023';
  elsif length(queue) not between 1 and 100 or queue ~ unprintable or queue ~ '[: ]' then
    raise exception 'a queue''s name is 1 to 100 characters without '':'' or blanks, got %', quote_literal(left(queue, 150))
      using errcode = '22023', hint = 'for example ''default''';
  elsif priority not between 1 and 9 then
    raise exception 'priority must be a whole number from 1 to 9 (9 is the most urgent), got %', priority using errcode = '22023';
  elsif max_retries not between 0 and 100 then
    raise exception 'max_retries must be a whole number from 0 to 100, got %', max_retries using errcode = '22023';
  elsif extract(epoch from delay) < 0 then
    raise exception 'delay cannot be negative, got %', delay using errcode = '22023', hint = 'leave it out to run now';
  elsif extract(epoch from delay) > 3153600000 then
    raise exception 'delay cannot be over 100 years, got %', delay using errcode = '22023';
  elsif delay is not null and run_at is not null then
    raise exception 'give either delay or run_at, not both' using errcode = '22023';
  elsif run_at not between first and last then
    raise exception 'run_at must be a moment of the years 2 to 9998, got %', run_at using errcode = '22023';
  elsif deadline not between first and last then
    raise exception 'deadline must be a moment of the years 2 to 9998, got %', deadline using errcode = '22023';
  elsif length(idempotency_key) not between 1 and 500 then
    raise exception 'idempotency_key must be text of 1 to 500 characters' using errcode = '22023';
  elsif length(goal) not between 1 and 2000 then
    raise exception 'goal must be text of 1 to 2000 characters' using errcode = '22023';
  elsif length(tenant) not between 1 and 100 or tenant ~ unprintable or tenant ~ '[: ]' then
    raise exception 'a tenant''s name is 1 to 100 characters without '':'' or blanks, got %', quote_literal(left(tenant, 150))
      using errcode = '22023', hint = 'for example ''default''';
  elsif length(concurrency_key) not between 1 and 200 then
    raise exception 'concurrency_key must be text of 1 to 200 characters' using errcode = '22023';
  elsif max_concurrent < 1 then
    raise exception 'max_concurrent must be a whole number of at least 1, got %', max_concurrent using errcode = '22023';
  elsif max_concurrent is not null and concurrency_key is null then
    raise exception 'max_concurrent needs a concurrency_key' using errcode = '22023';
  elsif octet_length(convert_to(payload, 'UTF8')) > 1048576 then
    raise exception 'the payload of job ''%'' is % bytes of JSON; the limit is 1048576', kind,
      octet_length(convert_to(payload, 'UTF8'))
      using errcode = '54000', hint = 'store large data elsewhere and pass its address';
  end if;
  if idempotency_key is not null then
    hash := encode(sha256(convert_to(payload, 'UTF8')), 'hex');
  end if;
  loop
    insert into perdure.jobs (id, tenant_id, kind, queue, goal, payload, payload_hash, priority, max_retries, run_at, deadline,
        idempotency_key, note, concurrency_key, max_concurrent)
      values (job, tenant, enqueue.kind, enqueue.queue, enqueue.goal, enqueue.payload::json, hash, enqueue.priority,
        enqueue.max_retries, coalesce(enqueue.run_at, perdure.db_now() + coalesce(delay, interval '0')), enqueue.deadline,
        enqueue.idempotency_key, json_build_object('actor', session_user, 'via', 'sql'),
        enqueue.concurrency_key, enqueue.max_concurrent)
      on conflict do nothing;
    if found then
      return job;
    end if;
    select j.id, j.payload_hash = hash or perdure.same_payload(tenant, j.kind, j.idempotency_key, enqueue.payload)
      into found_id, found_same from perdure.jobs j
      where j.tenant_id = tenant and j.kind = enqueue.kind and j.idempotency_key = enqueue.idempotency_key;
    continue when not found;  -- it was pruned between the two statements
    if found_same then
      return found_id;
    end if;
    raise exception 'idempotency key ''%'' of kind ''%'' already belongs to job %, which has another payload',
        idempotency_key, kind, found_id
      using errcode = '23505', schema = 'perdure', table = 'jobs', constraint = 'jobs_idempotency',
        hint = 'use another key for another payload, or send the same payload again';
  end loop;
end $$;

create function perdure.enqueue(
  kind text, payload json, queue text default 'default', priority int default 5, delay interval default null,
  run_at timestamptz default null, deadline timestamptz default null, idempotency_key text default null,
  max_retries int default null, goal text default null, tenant text default 'default',
  concurrency_key text default null, max_concurrent int default null
) returns uuid language sql volatile security invoker set search_path = pg_catalog, pg_temp as $$
  select perdure.enqueue(kind, payload::text, queue, priority, delay, run_at, deadline, idempotency_key, max_retries, goal, tenant,
    concurrency_key, max_concurrent)
$$;

create function perdure.enqueue(
  kind text, payload jsonb, queue text default 'default', priority int default 5, delay interval default null,
  run_at timestamptz default null, deadline timestamptz default null, idempotency_key text default null,
  max_retries int default null, goal text default null, tenant text default 'default',
  concurrency_key text default null, max_concurrent int default null
) returns uuid language sql volatile security invoker set search_path = pg_catalog, pg_temp as $$
  select perdure.enqueue(kind, payload::text, queue, priority, delay, run_at, deadline, idempotency_key, max_retries, goal, tenant,
    concurrency_key, max_concurrent)
$$;

-- Tasks wait for a slot of an account -----------------------------------------------------------------------------------------

alter table perdure.job_queue add column wanted_account text;
create index job_queue_accounts on perdure.job_queue (lane, kind, wanted_account, priority desc, run_at, job_id)
  where wanted_account is not null and not held;
create index tool_runs_session on perdure.tool_runs (tenant_id, session_id, finished_at) where session_id is not null;

-- The account that a task names, else that of the session it goes on with, else ''. A payload that cannot be read is left to the handler.
create function perdure.wanted_account(job uuid) returns text language plpgsql volatile
  set search_path = pg_catalog, pg_temp as $$
declare
  task record;
begin
  select j.tenant_id, j.payload ->> 'account' as account, j.payload ->> 'session' as session into task
    from perdure.jobs j where j.id = job;
  return left(coalesce(nullif(task.account, 'auto'), (select r.account_id from perdure.tool_runs r
    where r.tenant_id = task.tenant_id and r.session_id = task.session and r.account_id is not null
    order by r.finished_at desc limit 1), ''), 200);
exception when data_exception then
  return '';
end $$;

create function perdure.job_queue_task() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  new.wanted_account := perdure.wanted_account(new.job_id);
  return new;
end $$;
create trigger job_queue_task before insert on perdure.job_queue for each row when (new.kind like 'cli.%')
  execute function perdure.job_queue_task();
update perdure.job_queue set wanted_account = perdure.wanted_account(job_id) where kind like 'cli.%';

comment on column perdure.jobs.concurrency_key is 'Jobs with this key run at most so many at a time.';
comment on column perdure.jobs.max_concurrent is 'How many, where its caller said so; else what the handler of its kind says.';
comment on column perdure.job_queue.tenant_id is 'As in jobs; of jobs with a concurrency key only.';
comment on column perdure.job_queue.concurrency_key is 'As in jobs, or that of its handler.';
comment on column perdure.job_queue.max_concurrent is 'How many of its key may run, as it was last looked at.';
comment on column perdure.job_queue.held is 'It waits for a slot of its concurrency key.';
comment on column perdure.job_queue.wanted_account is 'Of a task: the account it is to run under, its id or group name; empty for any.';
comment on column perdure.job_claims.concurrency_key is 'The key whose slot this lease holds.';
comment on column perdure.job_claims.max_concurrent is 'How many of its key were allowed when it was claimed.';
comment on table perdure.limits is 'How many jobs of a concurrency key may run: what was set by hand wins over code.';
comment on column perdure.limits.tenant_id is 'As in jobs.';
comment on column perdure.limits.key is 'The concurrency key.';
comment on column perdure.limits.max is 'How many; 0: none.';
comment on column perdure.limits.set_at is 'When it was set.';
comment on column perdure.limits.set_by is 'By whom.';
comment on table perdure.freed_slots is 'Concurrency keys of which a slot may have become free; emptied all the time.';
comment on column perdure.freed_slots.tenant_id is 'As in jobs.';
comment on column perdure.freed_slots.key is 'The concurrency key.';
comment on view perdure.concurrency_limits is 'Accounts, and concurrency keys in use or set by hand: the maximum and the live leases of each.';
