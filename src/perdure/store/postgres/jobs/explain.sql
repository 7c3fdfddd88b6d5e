-- What decides whether a job moves, read in one snapshot: these, get_job, list_workers and list_events.

-- name: place_in_queue
select lane, priority, run_at, wanted_account, run_at <= perdure.db_now() as due from perdure.job_queue where job_id = :job_id

-- name: jobs_ahead
-- Due jobs of these kinds that a claim would take first, at most `limit` of each sort. higher: the priorities above its own. Ranges
-- of the ready index, so that delayed jobs cost nothing. Runs after by_index.
select count(*) as n from (
  (select 1 from perdure.job_queue q
    where q.lane = :lane and q.kind = any (:kinds::text[]) and q.priority = any (:higher::smallint[])
      and not q.held and q.run_at <= perdure.db_now() limit :limit)
  union all
  (select 1 from perdure.job_queue q
    where q.lane = :lane and q.kind = any (:kinds::text[]) and q.priority = :priority
      and not q.held and (q.run_at, q.job_id) < (:run_at, :job_id) limit :limit)
) ahead

-- name: held_before
-- Jobs of its concurrency key that get a slot before it: held ones, and those that were let through and not yet taken.
select count(*) as n from (select from perdure.job_queue own
  join perdure.job_queue q on q.tenant_id = own.tenant_id and q.concurrency_key = own.concurrency_key
    and q.lane = own.lane and q.kind = own.kind and (not q.held and q.run_at <= perdure.db_now()
      or q.held and (q.priority > own.priority or q.priority = own.priority and (q.run_at, q.job_id) < (own.run_at, own.job_id)))
  where own.job_id = :job_id limit :limit) before

-- name: parked_by
-- The version of the code of the last attempt that ended.
select (select w.version from perdure.workers w where w.id = r.worker_id) as version from perdure.job_incomplete_runs r
where r.job_id = :job_id order by r.attempt desc limit 1

-- name: account_holders
-- The jobs that hold slots of accounts, the oldest first.
select k.account_id, k.job_id from perdure.job_claims k where k.tenant_id = :tenant_id and k.account_id is not null
  and k.expires_at > perdure.db_now() order by k.claimed_at, k.job_id

-- name: lease_holder
-- The lease of a job and the worker it names, also a stopped one.
select k.claimed_at, w.*, w.state <> 'STOPPED' and w.heartbeat_at > perdure.db_now() - interval '15 seconds' as alive,
  (select count(*) from perdure.job_claims h where h.worker_id = k.worker_id and h.expires_at > perdure.db_now()) as held,
  coalesce((select json_object_agg(s.account_id, s.n) from (select h.account_id, count(*) as n from perdure.job_claims h
    where h.worker_id = k.worker_id and h.expires_at > perdure.db_now() and h.account_id is not null group by 1) s), '{}')::text as accounts
from perdure.job_claims k left join perdure.workers w on w.id = k.worker_id where k.job_id = :job_id

-- name: approvals_awaited
-- Those that the open waits of a job are about.
select a.*, j.kind as job_kind, j.status::text as job_status
from perdure.job_waits w join perdure.approvals a on a.job_id = any (array[w.job_id]) and a.id::text = w.subject_id
join perdure.jobs j on j.id = any (array[a.job_id])
where w.job_id = :job_id order by a.id

-- name: awaited_children
-- The jobs that its waits for children still wait for: of each wait the first few, and how many there are.
select a.key, a.child_id, c.kind, c.status::text as status, a.total from (
  select key, child_id, row_number() over (partition by key order by child_id) as place, count(*) over (partition by key) as total
  from perdure.awaited_jobs where job_id = :job_id) a
join perdure.jobs c on c.id = a.child_id where a.place <= :limit order by a.key, a.child_id
