-- Jobs whose worker is gone, or whose handler does not stop.

-- name: reap
-- Leases that have expired, and live ones whose cancel was requested longer ago than their worker's grace. A lease that had an end,
-- which has passed, is that of an attempt that ran into its timeout or deadline.
select k.job_id, k.version, k.attempt, k.worker_id, k.started, k.claimed_at, k.expires_at, k.cancel_requested_at, k.cancel_note,
  k.started and coalesce(k.ends_at <= :now, 0) as hung, coalesce(j.deadline <= :now, 0) as late,
  j.kind, j.retry_count, j.max_retries, j.lost_starts, j.suspicion
from job_claims k cross join jobs j on j.id = k.job_id
where (k.expires_at <= :now or case when k.cancel_requested_at is not null then k.cancel_requested_at <= :now
    - coalesce((select w.grace from workers w where w.id = k.worker_id), 10000000) end)
  and k.tenant_id = :tenant_id order by k.job_id limit :limit

-- name: crowds
-- only: sqlite the twin does it in its statement. Of each of these workers: its started jobs, those that were taken from it before,
-- the highest suspicion among them and how many have it; worker_ids: JSON array
select k.worker_id, count(*) as started, max(j.suspicion) as top,
  sum(j.suspicion = (select max(o.suspicion) from job_claims c cross join jobs o on o.id = c.job_id
    where c.started and c.worker_id = k.worker_id and c.tenant_id = :tenant_id)) as tops,
  coalesce((select w.losses from workers w where w.id = k.worker_id and w.tenant_id = :tenant_id), 0) as losses
from job_claims k cross join jobs j on j.id = k.job_id
where k.started and k.tenant_id = :tenant_id and k.worker_id in (select value from json_each(:worker_ids)) group by k.worker_id

-- name: count_losses
-- only: sqlite the twin does it in its statement; losses: JSON object of worker ids
update workers set losses = losses + e.value from json_each(:losses) e where workers.id = e.key and tenant_id = :tenant_id
