-- Deadlines of jobs and approvals that no worker holds.

-- name: expire_jobs
-- Jobs that no worker holds, past their deadline. only_job: null for any.
with late as materialized (
  select j.id from perdure.job_queue q join perdure.jobs j on j.id = any (array[q.job_id])
  where q.deadline <= perdure.db_now() and j.tenant_id = :tenant_id and (:only_job::uuid is null or q.job_id = :only_job)
  order by j.id limit :limit for update of q, j skip locked
)
update perdure.jobs j set status = 'FAILED', prev_status = j.status, version = j.version + 1, next_retry_at = null,
  updated_at = perdure.db_now(), finished_at = perdure.db_now(), error_kind = 'timeout',
  error_message = 'the deadline passed before it could finish',
  note = json_build_object('via', 'system', 'reason', 'deadline', 'error', 'the deadline passed before it could finish',
    'error_kind', 'timeout')
from late where j.id = any (array[late.id]) and j.status in ('PENDING', 'RETRY', 'PARKED', 'WAITING_FOR_APPROVAL') returning j.id

-- name: late_jobs
-- For the rare expire_jobs that fails as a whole, to go on one by one.
select q.job_id from perdure.job_queue q join perdure.jobs j on j.id = any (array[q.job_id])
where q.deadline <= perdure.db_now() and j.tenant_id = :tenant_id order by j.id limit :limit

-- name: due_approvals
select id, job_id from perdure.approvals where status = 'PENDING' and expires_at <= perdure.db_now() and tenant_id = :tenant_id
order by expires_at limit :limit
