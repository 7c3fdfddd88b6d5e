-- Claiming. Where the dialect differs: a transaction of the writer has the file for itself, so it first looks, then writes, without
-- locks; what the twin says in one statement is a few short ones here.

-- name: claim
-- What is due in a lane, the highest priority first. Where jobs of one kind wait: one index range for each priority, so that 100k
-- delayed jobs at priority 9 cost nothing; the limit is met before the lower ones are looked at. Where jobs of several kinds do,
-- `kind` is null, `kinds` names them (a JSON array, else null), and `merged` walks their ranges side by side: the row it takes is
-- replaced by the next of its range. (Without the `+` the index would be used for the time alone. The twin, whose recursions have no
-- order, counts.) A row of a job that cannot start is stale: it comes along to be deleted.
-- Each answer is one JSON array (see engine/statements.py): all ids, those of jobs that start, their rows, the ids among them whose
-- payload is large: it is fetched by itself; and, left out of all these, the ids of jobs of another tenant or kind, and those of jobs
-- with a concurrency key, their own or that of their handler (keys, a JSON object by kind, or null): claim_limited takes or holds them.
with recursive due as not materialized (
  select kind, priority, run_at, job_id from job_queue where lane = :lane and kind = :kind and held = 0 and run_at <= :now
), merged (kind, priority, run_at, job_id) as (
  select q.kind, q.priority, q.run_at, q.job_id
  from json_each(:kinds) k cross join json_each('[9, 8, 7, 6, 5, 4, 3, 2, 1]') p cross join job_queue q on q.job_id = (
    select f.job_id from job_queue f where f.lane = :lane and f.kind = k.value and f.priority = p.value and f.held = 0
      and f.run_at <= :now
    order by f.run_at, f.job_id limit 1)
  union all
  select q.kind, q.priority, q.run_at, q.job_id
  from merged m cross join job_queue q on q.job_id = (
    select f.job_id from job_queue f where f.lane = :lane and f.kind = m.kind and f.priority = m.priority and f.held = 0
      and (f.run_at, f.job_id) > (m.run_at, +m.job_id) and f.run_at <= :now
    order by f.run_at, f.job_id limit 1)
  order by 2 desc, 3, 4 limit :limit
), front as (
    select * from (select * from due where priority = 9 order by run_at, job_id limit :limit)
    union all select * from (select * from due where priority = 8 order by run_at, job_id limit :limit)
    union all select * from (select * from due where priority = 7 order by run_at, job_id limit :limit)
    union all select * from (select * from due where priority = 6 order by run_at, job_id limit :limit)
    union all select * from (select * from due where priority = 5 order by run_at, job_id limit :limit)
    union all select * from (select * from due where priority = 4 order by run_at, job_id limit :limit)
    union all select * from (select * from due where priority = 3 order by run_at, job_id limit :limit)
    union all select * from (select * from due where priority = 2 order by run_at, job_id limit :limit)
    union all select * from (select * from due where priority = 1 order by run_at, job_id limit :limit)
    union all select * from merged
    limit :limit
), looked_at as (
  select j.*, f.job_id, f.run_at as due_at, length(j.payload) > 8192 as bulky,
    coalesce(j.tenant_id <> :tenant_id or j.kind <> f.kind, 0) as stray,
    (j.concurrency_key is not null or :keys is not null and (select 1 from json_each(:keys) where key = f.kind) is not null)
      and j.tenant_id = :tenant_id and j.kind = f.kind as limited,
    j.tenant_id = :tenant_id and j.kind = f.kind and j.status in ('PENDING', 'RETRY', 'PARKED', 'WAITING_FOR_APPROVAL') as starts
  from front f left join jobs j on j.id = f.job_id
)
select json_group_array(job_id) filter (where not stray and limited is not 1) as found,
  json_group_array(job_id) filter (where starts and not limited) as ids,
  json_group_array(json_array(id, attempt + 1, kind, queue, goal, iif(bulky, null, payload), priority, version + 1, retry_count,
    max_retries, lost_starts, idempotency_key, deadline, :now, (:now - due_at) / 1000000.0, suspicion, null))
    filter (where starts and not limited) as jobs,
  json_group_array(id) filter (where starts and not limited and bulky) as large, json_group_array(job_id) filter (where stray) as strays,
  json_group_array(job_id) filter (where limited) as limited
from looked_at

-- name: claim_kinds
-- only: sqlite kinds: JSON array. Those of which any job waits, due or not: how many, one of them, and all. Of a paused queue none.
select count(*) as number, min(k.value) as kind, json_group_array(k.value) as kinds
from json_each(:kinds) k where exists (select 1 from job_queue q where q.lane = :lane and q.kind = k.value and q.held = 0)
  and not exists (select 1 from queue_pauses z where z.lane = :lane and z.resumed_at is null)

-- name: large_payloads
-- only: sqlite see claim; ids: JSON array
select id, payload from jobs where id in (select value from json_each(:ids))

-- name: claim_take
-- only: sqlite the claim's second step; ids: JSON array
delete from job_queue where job_id in (select value from json_each(:ids))

-- name: claim_move
-- only: sqlite the claim's third step; ids: JSON array. Jobs whose callers left max_retries to the handler get that of their kind:
-- `most` where all are of one kind, else from `retries`, a JSON object by kind.
update jobs set status = 'RUNNING', prev_status = status, version = version + 1, attempt = attempt + 1,
  next_retry_at = null, started_at = coalesce(started_at, :now), updated_at = :now, note = :note,
  max_retries = coalesce(max_retries, max(retry_count, :most),
    (select max(retry_count, r.value) from json_each(:retries) r where r.key = kind))
where id in (select value from json_each(:ids))

-- name: claim_lease
-- only: sqlite the claim's last step; ids: JSON array. slot, top: the concurrency key whose slot they hold, and its maximum; null where
-- they have none.
insert into job_claims (job_id, tenant_id, attempt, version, worker_id, ttl, claimed_at, expires_at, concurrency_key, max_concurrent)
select j.id, j.tenant_id, j.attempt, j.version, :worker_id, :ttl, :now, :expires_at, :slot, :top
from json_each(:ids) e cross join jobs j on j.id = e.value where true
on conflict (job_id) do update set attempt = excluded.attempt, version = excluded.version, worker_id = excluded.worker_id,
  ttl = excluded.ttl, claimed_at = excluded.claimed_at, expires_at = excluded.expires_at, started = 0,
  cancel_requested_at = null, cancel_note = null, ends_at = null,
  concurrency_key = excluded.concurrency_key, max_concurrent = excluded.max_concurrent, account_id = null

-- name: push_back
-- A job that cannot be claimed is due later, so that its lane goes on.
update job_queue set run_at = :until, held = 0 where job_id = :job_id

-- name: free_its_slot
-- only: sqlite a part of the twin's push_back. The next job of its key may have the slot that it was let through for.
insert into freed_slots (tenant_id, key)
select tenant_id, concurrency_key from job_queue where job_id = :job_id and concurrency_key is not null on conflict do nothing

-- name: next_due
-- lanes, kinds: JSON arrays. The front of each range of the ready index; microseconds.
select min(x.run_at) - (select now from clock) as left from (
  select (select q.run_at from job_queue q where q.lane = l.value and q.kind = k.value and q.priority = p.value
    and q.held = 0 order by q.run_at limit 1) as run_at
  from json_each(:lanes) l cross join json_each(:kinds) k cross join json_each('[1, 2, 3, 4, 5, 6, 7, 8, 9]') p
  where exists (select 1 from job_queue q where q.lane = l.value and q.kind = k.value and q.held = 0)
    and not exists (select 1 from queue_pauses z where z.lane = l.value and z.resumed_at is null)) x

-- name: waiting_lanes
-- From one lane to the next one, not through their rows; then as next_due. kinds: JSON array. prefix: of the tenant's lanes, empty for
-- the tenant whose lanes have none.
with recursive lanes as (
  select min(lane) as lane from job_queue where held = 0
  union all
  select (select min(q.lane) from job_queue q where q.held = 0 and q.lane > l.lane) from lanes l where l.lane is not null
)
select x.lane, max(x.run_at <= (select now from clock)) as due from (
  select l.lane, (select q.run_at from job_queue q where q.lane = l.lane and q.kind = k.value and q.priority = p.value
    and q.held = 0 order by q.run_at limit 1) as run_at
  from lanes l cross join json_each(:kinds) k cross join json_each('[1, 2, 3, 4, 5, 6, 7, 8, 9]') p
  where case when :prefix = '' then instr(l.lane, ':') = 0 else substr(l.lane, 1, length(:prefix)) = :prefix end
    and exists (select 1 from job_queue q where q.lane = l.lane and q.kind = k.value and q.held = 0)
    and not exists (select 1 from queue_pauses z where z.lane = l.lane and z.resumed_at is null)) x
where x.run_at is not null group by x.lane
