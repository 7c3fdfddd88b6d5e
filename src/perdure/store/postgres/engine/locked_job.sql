-- Locking a job, and appending perdure's own events to its log.

-- name: lock_claim
select tenant_id, attempt, version, worker_id, expires_at > perdure.db_now() as live, cancel_requested_at
from perdure.job_claims where job_id = :job_id for update

-- name: lock_job
select status::text, version from perdure.jobs where id = :job_id and tenant_id = :tenant_id for update

-- name: append_free
-- To an unleased, locked job. version: the head of its log
with written as (
  insert into perdure.job_events (job_id, version, attempt, event_id, type, payload)
  select j.id, j.version + 1, j.attempt, :event_id, :type, :payload::text::json from perdure.jobs j
  where j.id = :job_id and j.version = :version
  returning job_id, version
)
update perdure.jobs j set version = w.version, prev_status = j.status, updated_at = perdure.db_now()
from written w where j.id = w.job_id returning j.version

-- name: append_leased
-- By perdure itself to a leased, locked job.
with head as (
  update perdure.job_claims k set version = k.version + 1 where k.job_id = :job_id returning k.job_id, k.version, k.attempt
)
insert into perdure.job_events (job_id, version, attempt, event_id, type, payload)
select job_id, version, attempt, :event_id, :type, :payload::text::json from head returning version
