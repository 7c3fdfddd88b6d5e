-- Renewing leases, and what else a holder says or asks about its lease.

-- name: heartbeat
-- leases: JSON object of job ids: whether user code has begun, and the time when the lease ends for good, null for none; the first
-- that was written stays
update job_claims set ttl = :ttl, started = started or e.value ->> 0, ends_at = coalesce(ends_at, e.value ->> 1),
  expires_at = min(:expires_at, coalesce(ends_at, e.value ->> 1, :expires_at))
from json_each(:leases) e where job_id = e.key

-- name: cancel_requests
select job_id, attempt from job_claims
where worker_id = :worker_id and tenant_id = :tenant_id and cancel_requested_at is not null and expires_at > (select now from clock)

-- name: set_waiting
update jobs set status = :status, prev_status = status, version = :version, updated_at = :now, note = :note where id = :job_id

-- name: read_wait
-- An open wait of a leased job.
select w.key, w.kind, w.subject_id, w.until, w.answered_at from job_waits w
join job_claims k on k.job_id = w.job_id where w.job_id = :job_id and w.kind = :kind and w.key = :key and k.tenant_id = :tenant_id
