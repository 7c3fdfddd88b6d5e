-- Jobs with a concurrency key: which of them are taken, held and released. See limited.py, and the twin's functions in its migration
-- 0003, which say why; here the writer has the file for itself, so the steps need no lock of the key.

-- name: give_keys
-- only: sqlite the twin is a function. Jobs whose callers gave no key get that of their handler; ids: a JSON array; keys, tops: JSON objects by kind.
update job_queue set tenant_id = :tenant_id, concurrency_key = (select value from json_each(:keys) where key = kind),
  max_concurrent = (select value from json_each(:tops) where key = kind)
where concurrency_key is null and job_id in (select value from json_each(:ids))
  and (select 1 from json_each(:keys) where key = kind) is not null

-- name: keyless_behind
-- only: sqlite the twin is a function. The first jobs of a kind that got no key of their callers.
select json_group_array(job_id) from (select q.job_id from json_each('[9, 8, 7, 6, 5, 4, 3, 2, 1]') p cross join job_queue q
  where q.lane = :lane and q.kind = :kind and q.priority = p.value and q.held = 0 and q.run_at <= :now and q.concurrency_key is null
  limit 500)

-- name: keys_found
-- only: sqlite the twin is a function. The keys of these jobs (ids: JSON array), with the kinds that they are of.
select concurrency_key, json_group_array(distinct kind) from job_queue
where job_id in (select value from json_each(:ids)) and concurrency_key is not null and held = 0 group by 1 order by 1

-- name: slots_in_use
-- only: sqlite the twin is a function. The live leases of a key, and what an operator has set as its maximum.
select (select count(*) from job_claims where tenant_id = :tenant_id and concurrency_key = :key) as live,
  (select max from limits where tenant_id = :tenant_id and key = :key) as by_hand

-- name: keyed_front
-- only: sqlite the twin is a function. The first jobs of a key in a lane, of one kind, that are held or not; ids: null for any.
select q.priority, q.run_at, q.job_id, j.max_concurrent from job_queue q cross join jobs j on j.id = q.job_id
where q.tenant_id = :tenant_id and q.concurrency_key = :key and q.held = :held and q.lane = :lane and q.kind = :kind
  and q.run_at <= :now and j.tenant_id = :tenant_id and j.kind = q.kind and (:ids is null or q.job_id in (select value from json_each(:ids)))
order by q.priority desc, q.run_at, q.job_id limit :limit

-- name: limited_rows
-- only: sqlite the twin is a function. As `claim` gives them: these jobs (ids: JSON array), which take a slot of a key.
with looked_at as (
  select j.*, q.run_at as due_at, length(j.payload) > 8192 as bulky,
    j.status in ('PENDING', 'RETRY', 'PARKED', 'WAITING_FOR_APPROVAL') as starts
  from json_each(:ids) e cross join job_queue q on q.job_id = e.value cross join jobs j on j.id = q.job_id
)
select json_group_array(id) filter (where starts) as ids,
  json_group_array(json_array(id, attempt + 1, kind, queue, goal, iif(bulky, null, payload), priority, version + 1, retry_count,
    max_retries, lost_starts, idempotency_key, deadline, :now, (:now - due_at) / 1000000.0, suspicion, :slot))
    filter (where starts) as jobs,
  json_group_array(id) filter (where starts and bulky) as large
from looked_at

-- name: keep_key
-- only: sqlite the twin is a function. A job whose key came from its handler keeps it.
update jobs set concurrency_key = :slot where id in (select value from json_each(:ids)) and concurrency_key is null

-- name: hold
-- only: sqlite the twin is a function. ids: JSON array of jobs whose key is full; top: its maximum.
update job_queue set held = 1, max_concurrent = :top where job_id in (select value from json_each(:ids))

-- name: held_places
-- only: sqlite the twin is a function. Where held jobs of a key are, and the maximum of the first of them.
with recursive places (lane, kind) as (
  select * from (select lane, kind from job_queue where tenant_id = :tenant_id and concurrency_key = :key and held = 1
    order by lane, kind limit 1)
  union all
  select q.lane, q.kind from places p cross join job_queue q on q.job_id = (
    select n.job_id from job_queue n where n.tenant_id = :tenant_id and n.concurrency_key = :key and n.held = 1
      and (n.lane, n.kind) > (p.lane, p.kind) order by n.lane, n.kind limit 1)
)
select lane, kind, (select q.max_concurrent from job_queue q where q.tenant_id = :tenant_id and q.concurrency_key = :key and q.held = 1
  and q.lane = p.lane and q.kind = p.kind order by q.priority desc, q.run_at, q.job_id limit 1) as top
from places p

-- name: let_through
-- only: sqlite the twin is a function. How many jobs of a key in a place are due and not held, up to a limit.
select count(*) as n from (select 1 from job_queue where tenant_id = :tenant_id and concurrency_key = :key and held = 0
  and lane = :lane and kind = :kind and run_at <= :now limit :limit)

-- name: release_some
-- only: sqlite the twin is a function. The first held jobs of a key in a place go on.
update job_queue set held = 0 where job_id in (select job_id from job_queue
  where tenant_id = :tenant_id and concurrency_key = :key and held = 1 and lane = :lane and kind = :kind
  order by priority desc, run_at, job_id limit :limit)

-- name: release_held
-- Keys of which a slot has become free, taken from the table.
delete from freed_slots where (tenant_id, key) in (select tenant_id, key from freed_slots where tenant_id = :tenant_id limit :limit)
returning key

-- name: any_freed
-- only: sqlite a look that takes no lock
select 1 as freed from freed_slots where tenant_id = :tenant_id
union all select 1 from rates where tenant_id = :tenant_id and wake_at <= (select now from clock) limit 1

-- name: recheck_held
-- Lets release_held look at every key that has held jobs.
insert into freed_slots (tenant_id, key)
with recursive names (key) as (
  select min(concurrency_key) from job_queue where tenant_id = :tenant_id and concurrency_key is not null
  union all
  select (select min(q.concurrency_key) from job_queue q where q.tenant_id = :tenant_id and q.concurrency_key > n.key) from names n
  where n.key is not null
)
select :tenant_id, n.key from names n where n.key is not null and exists (
  select 1 from job_queue q where q.tenant_id = :tenant_id and q.concurrency_key = n.key and q.held = 1)
on conflict do nothing
