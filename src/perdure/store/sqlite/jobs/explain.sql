-- What decides whether a job moves, read in one snapshot: these, get_job, list_workers and list_events.
-- Where the dialect differs: time is a parameter or the clock view; a part of a union that has a limit is a query of its own.

-- name: place_in_queue
select lane, priority, run_at, wanted_account, run_at <= (select now from clock) as due from job_queue where job_id = :job_id

-- name: jobs_ahead
-- Due jobs that a claim would take first; JSON arrays of their kinds and of the higher priorities. At most :most of each sort are counted. Ranges
-- of the ready index, so that delayed jobs cost nothing.
select count(*) as n from (
  select * from (select 1 from job_queue q where q.lane = :lane and q.kind in (select value from json_each(:kinds))
    and q.priority in (select value from json_each(:higher)) and q.held = 0 and q.run_at <= (select now from clock) limit :most)
  union all
  select * from (select 1 from job_queue q where q.lane = :lane and q.kind in (select value from json_each(:kinds))
    and q.priority = :priority and q.held = 0
    and (q.run_at, q.job_id) < (:run_at, :job_id) limit :most))

-- name: held_before
-- Jobs of its concurrency key that get a slot before it: held ones, and those that were let through and not yet taken.
select count(*) as n from (select 1 from job_queue own
  join job_queue q on q.tenant_id = own.tenant_id and q.concurrency_key = own.concurrency_key
    and q.lane = own.lane and q.kind = own.kind and (q.held = 0 and q.run_at <= (select now from clock)
      or q.held = 1 and (q.priority > own.priority or q.priority = own.priority and (q.run_at, q.job_id) < (own.run_at, own.job_id)))
  where own.job_id = :job_id limit :limit)

-- name: parked_by
-- The version of the code of the last attempt that ended.
select (select w.version from workers w where w.id = r.worker_id) as version from job_incomplete_runs r
where r.job_id = :job_id order by r.attempt desc limit 1

-- name: account_holders
-- The jobs that hold slots of accounts, the oldest first.
select k.account_id, k.job_id from job_claims k where k.tenant_id = :tenant_id and k.account_id is not null
  and k.expires_at > (select now from clock) order by k.claimed_at, k.job_id

-- name: lease_holder
-- The lease of a job and the worker it names, also a stopped one.
select k.claimed_at, w.*, w.state <> 'STOPPED' and w.heartbeat_at > (select now from clock) - 15000000 as alive,
  (select count(*) from job_claims h where h.worker_id = k.worker_id and h.expires_at > (select now from clock)) as held,
  (select json_group_object(s.account_id, s.n) from (select h.account_id, count(*) as n from job_claims h
    where h.worker_id = k.worker_id and h.expires_at > (select now from clock) and h.account_id is not null group by 1) s) as accounts
from job_claims k left join workers w on w.id = k.worker_id where k.job_id = :job_id

-- name: approvals_awaited
-- Those that the open waits of a job are about.
select a.*, j.kind as job_kind, j.status as job_status
from job_waits w cross join approvals a on a.id = w.subject_id cross join jobs j on j.id = a.job_id
where w.job_id = :job_id order by a.id

-- name: awaited_children
-- The jobs that its waits for children still wait for: of each wait the first few, and how many there are.
select a.key, a.child_id, c.kind, c.status as status, a.total from (
  select key, child_id, row_number() over (partition by key order by child_id) as place, count(*) over (partition by key) as total
  from awaited_jobs where job_id = :job_id) a
join jobs c on c.id = a.child_id where a.place <= :limit order by a.key, a.child_id
