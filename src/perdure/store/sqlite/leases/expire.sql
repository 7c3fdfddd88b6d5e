-- Deadlines of what no worker holds.

-- name: expire_jobs
-- Unleased jobs whose deadline has passed; job_id null means any.
update jobs set status = 'FAILED', prev_status = status, version = version + 1, next_retry_at = null, updated_at = :now,
  finished_at = :now, error_kind = 'timeout', error_message = 'the deadline passed before it could finish',
  note = json_object('via', 'system', 'reason', 'deadline', 'error', 'the deadline passed before it could finish',
    'error_kind', 'timeout')
where status in ('PENDING', 'RETRY', 'PARKED', 'WAITING_FOR_APPROVAL') and tenant_id = :tenant_id and id in (
  select q.job_id from job_queue q cross join jobs j on j.id = q.job_id
  where q.deadline <= :now and j.tenant_id = :tenant_id and (:job_id is null or q.job_id = :job_id) order by q.deadline limit :limit)

-- name: late_jobs
-- Where expire_jobs fails as a whole: the same jobs, to go on one by one.
select q.job_id from job_queue q cross join jobs j on j.id = q.job_id
where q.deadline <= :now and j.tenant_id = :tenant_id order by q.deadline limit :limit

-- name: due_approvals
select id, job_id, key, on_expiry from approvals where status = 'PENDING' and expires_at <= :now and tenant_id = :tenant_id
order by expires_at limit :limit
