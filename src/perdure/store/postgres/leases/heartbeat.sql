-- Keeping jobs: what a worker does about the leases it holds.

-- name: heartbeat
-- ids: sorted. started: the jobs that have begun user code. ends: seconds until the lease ends for good, null where it has no end;
-- the first that was written stays, so that no worker can put it off.
-- Rows that another session has locked are left out: one of them must not keep all others from being renewed.
with live as materialized (
  select k.job_id, coalesce(k.ends_at, perdure.db_now() + u.ends * interval '1 second') as ends_at from perdure.job_claims k
    join unnest(:ids::uuid[], :attempts::int[], :worker_ids::text[], :ends::float8[]) u(id, attempt, worker_id, ends)
    on k.job_id = any (array[u.id]) and k.attempt = u.attempt and k.worker_id = u.worker_id
  where k.tenant_id = :tenant_id and k.expires_at > perdure.db_now() order by u.id for update of k skip locked
)
update perdure.job_claims k set ttl = :ttl::interval, ends_at = live.ends_at,
  expires_at = least(perdure.db_now() + :ttl::interval, live.ends_at),
  started = k.started or k.job_id = any(:started::uuid[])
from live where k.job_id = any (array[live.job_id]) returning k.job_id

-- name: still_held
-- only: postgres which of the leases that were not renewed are live all the same, their rows locked?
select k.job_id from perdure.job_claims k join unnest(:ids::uuid[], :attempts::int[], :worker_ids::text[]) u(id, attempt, worker_id)
  on k.job_id = any (array[u.id]) and k.attempt = u.attempt and k.worker_id = u.worker_id
where k.tenant_id = :tenant_id and k.expires_at > perdure.db_now()

-- name: cancel_requests
select job_id, attempt from perdure.job_claims
where worker_id = :worker_id and tenant_id = :tenant_id and cancel_requested_at is not null and expires_at > perdure.db_now()

-- name: set_waiting
-- waiting: true = RUNNING to WAITING, false = back
with head as (
  update perdure.job_claims k set version = k.version + 1
  where k.job_id = :job_id and k.attempt = :attempt and k.worker_id = :worker_id and k.tenant_id = :tenant_id
    and k.expires_at > perdure.db_now()
  returning k.job_id, k.version, k.worker_id
)
update perdure.jobs j set status = case when :waiting::bool then 'WAITING' else 'RUNNING' end::perdure.job_status,
  prev_status = j.status, version = h.version, updated_at = perdure.db_now(), note = json_build_object('worker', h.worker_id)
from head h where j.id = h.job_id and j.status = case when :waiting::bool then 'RUNNING' else 'WAITING' end::perdure.job_status
returning j.id

-- name: read_wait
-- An open wait of a leased job.
select w.key, w.kind, w.subject_id, w.until, w.answered_at from perdure.job_waits w
join perdure.job_claims k on k.job_id = w.job_id where w.job_id = :job_id and w.kind = :kind and w.key = :key and k.tenant_id = :tenant_id
