-- Counts for dashboards. They read transient tables: the finished jobs are never looked at, however many there are.

-- name: live_jobs
-- Jobs that only an answer wakes stand in job_waits alone.
with live as materialized (
  select job_id, run_at from perdure.job_queue
  union all
  select job_id, null from perdure.job_claims where tenant_id = :tenant_id
  union all
  select distinct w.job_id, null::timestamptz from perdure.job_waits w
  where not exists (select from perdure.job_queue q where q.job_id = w.job_id)
    and not exists (select from perdure.job_claims k where k.job_id = w.job_id)
)
select j.kind, j.queue, j.status::text as status, count(*) as jobs,
  extract(epoch from perdure.db_now() - min(l.run_at) filter (where l.run_at <= perdure.db_now()))::float8 as oldest_ready
from live l join perdure.jobs j on j.id = any (array[l.job_id]) where j.tenant_id = :tenant_id group by 1, 2, 3

-- name: pending_approvals
-- Every open question is awaited.
select count(*) as pending, extract(epoch from perdure.db_now() - min(a.requested_at))::float8 as oldest, perdure.db_now() as now
from perdure.job_waits w join perdure.approvals a on a.job_id = any (array[w.job_id]) and a.id::text = w.subject_id
where a.status = 'PENDING' and a.tenant_id = :tenant_id

-- name: decided_approvals
select id, status, decided_via, decided_at, extract(epoch from decided_at - requested_at)::float8 as waited
from perdure.approvals
where decided_at >= :since and tenant_id = :tenant_id and status <> 'CANCELLED' order by decided_at limit :limit
