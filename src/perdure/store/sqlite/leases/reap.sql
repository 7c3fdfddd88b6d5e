-- Jobs whose worker is gone, or whose handler does not stop.

-- name: reap
-- Leases that have expired, and live ones whose cancel was requested longer ago than their worker's grace. A lease that had an end,
-- which has passed, is that of an attempt that ran into its timeout or deadline.
select k.job_id, k.version, k.attempt, k.worker_id, k.started, k.claimed_at, k.expires_at, k.cancel_requested_at, k.cancel_note,
  k.started and coalesce(k.ends_at <= :now, 0) as hung, coalesce(j.deadline <= :now, 0) as late,
  j.kind, j.retry_count, j.max_retries, j.lost_starts
from job_claims k cross join jobs j on j.id = k.job_id
where (k.expires_at <= :now or case when k.cancel_requested_at is not null then k.cancel_requested_at <= :now
    - coalesce((select w.grace from workers w where w.id = k.worker_id), 10000000) end)
  and k.tenant_id = :tenant_id order by k.job_id limit :limit
