-- Claiming. Where the dialect differs: a transaction of the writer has the file for itself, so it first looks, then writes, without
-- locks; what the twin says in one statement is a few short ones here.

-- name: claim
-- What is due in a lane, the highest priority first: one index range for each, so that 100k delayed jobs at priority 9 cost
-- nothing; the limit is met before the lower ones are looked at. A row of a job that cannot start is stale: it comes along to be
-- deleted. Each answer is one JSON array (see engine/statements.py): all ids, those of jobs that start, their rows, the ids among them whose
-- payload is large: it is fetched by itself; and, left out of all these, the ids of another tenant's jobs.
with due as not materialized (
  select priority, run_at, job_id from job_queue where lane = :lane and run_at <= :now
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
    limit :limit
), looked_at as (
  select j.*, f.job_id, f.run_at as due_at, length(j.payload) > 8192 as bulky, coalesce(j.tenant_id <> :tenant_id, 0) as stray,
    j.tenant_id = :tenant_id and j.status in ('PENDING', 'RETRY', 'PARKED', 'WAITING_FOR_APPROVAL') as starts
  from front f left join jobs j on j.id = f.job_id
)
select json_group_array(job_id) filter (where not stray) as found, json_group_array(job_id) filter (where starts) as ids,
  json_group_array(json_array(id, attempt + 1, kind, queue, goal, iif(bulky, null, payload), priority, version + 1, retry_count,
    max_retries, lost_starts, idempotency_key, deadline, :now, (:now - due_at) / 1000000.0)) filter (where starts) as jobs,
  json_group_array(id) filter (where starts and bulky) as large, json_group_array(job_id) filter (where stray) as strays
from looked_at

-- name: large_payloads
-- only: sqlite see claim; ids: JSON array
select id, payload from jobs where id in (select value from json_each(:ids))

-- name: claim_take
-- only: sqlite the claim's second step; ids: JSON array
delete from job_queue where job_id in (select value from json_each(:ids))

-- name: claim_move
-- only: sqlite the claim's third step; ids: JSON array
update jobs set status = 'RUNNING', prev_status = status, version = version + 1, attempt = attempt + 1,
  next_retry_at = null, started_at = coalesce(started_at, :now), updated_at = :now, note = :note
where id in (select value from json_each(:ids))

-- name: claim_lease
-- only: sqlite the claim's last step; ids: JSON array
insert into job_claims (job_id, tenant_id, attempt, version, worker_id, ttl, claimed_at, expires_at)
select j.id, j.tenant_id, j.attempt, j.version, :worker_id, :ttl, :now, :expires_at
from json_each(:ids) e cross join jobs j on j.id = e.value where true
on conflict (job_id) do update set attempt = excluded.attempt, version = excluded.version, worker_id = excluded.worker_id,
  ttl = excluded.ttl, claimed_at = excluded.claimed_at, expires_at = excluded.expires_at, started = 0,
  cancel_requested_at = null, cancel_note = null, ends_at = null

-- name: push_back
-- A job that cannot be claimed is due later, so that its lane goes on.
update job_queue set run_at = :until where job_id = :job_id

-- name: next_due
-- lanes: JSON array. The front of each range of the ready index; microseconds.
select min(x.run_at) - (select now from clock) as left from (
  select (select q.run_at from job_queue q where q.lane = l.value and q.priority = p.value order by q.run_at limit 1) as run_at
  from json_each(:lanes) l cross join json_each('[1, 2, 3, 4, 5, 6, 7, 8, 9]') p) x
