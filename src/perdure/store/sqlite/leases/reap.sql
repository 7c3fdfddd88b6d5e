-- Jobs whose worker is gone.

-- name: reap
-- Leases that have expired, and live ones whose cancel request is older than :asked_before.
select k.job_id, k.version, k.attempt, k.worker_id, k.started, k.claimed_at, k.expires_at, k.cancel_requested_at, k.cancel_note,
  j.kind, j.retry_count, j.max_retries, j.lost_starts
from job_claims k cross join jobs j on j.id = k.job_id
where (k.expires_at <= :now or k.cancel_requested_at <= :asked_before) and k.tenant_id = :tenant_id order by k.job_id limit :limit
