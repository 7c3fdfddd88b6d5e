-- What dashboards ask for. It is read from what is transient: the finished jobs are never looked at, however many there are.
-- Where the dialect differs: seconds are computed from microseconds, and `cross join` keeps the order of the tables.

-- name: live_jobs
-- Jobs that only an answer wakes stand in job_waits alone.
with live (job_id, run_at) as materialized (
  select job_id, run_at from job_queue
  union all
  select job_id, null from job_claims where tenant_id = :tenant_id
  union all
  select distinct w.job_id, null from job_waits w
  where not exists (select 1 from job_queue q where q.job_id = w.job_id)
    and not exists (select 1 from job_claims k where k.job_id = w.job_id)
)
select j.kind, j.queue, j.status, count(*) as jobs,
  (n.now - min(l.run_at) filter (where l.run_at <= n.now)) / 1000000.0 as oldest_ready
from clock n cross join live l cross join jobs j on j.id = l.job_id where j.tenant_id = :tenant_id group by 1, 2, 3

-- name: pending_approvals
-- Every open question is awaited.
select count(*) as pending, ((select now from clock) - min(a.requested_at)) / 1000000.0 as oldest, (select now from clock) as now
from job_waits w cross join approvals a on a.id = w.subject_id
where a.status = 'PENDING' and a.tenant_id = :tenant_id

-- name: decided_approvals
select id, status, decided_via, decided_at, (decided_at - requested_at) / 1000000.0 as waited
from approvals where decided_at >= :since and tenant_id = :tenant_id and status <> 'CANCELLED' order by decided_at limit :limit
