-- Deciding once, and what becomes of the job. Where the dialect differs: no row locks, see jobs/enqueue.sql.

-- name: fail_suspended
-- A job suspended without a lease is failed by an answer or by its absence.
update jobs set status = 'FAILED', prev_status = status, version = version + 1, finished_at = :now, updated_at = :now,
  error_message = :error, error_kind = :error_kind, note = :note
where id = :job_id and status in ('PARKED', 'WAITING_FOR_APPROVAL')

-- name: lock_approval
select *, coalesce(expires_at <= :now, 0) as expired from approvals where id = :approval_id and tenant_id = :tenant_id

-- name: approval_of_token
select id, job_id from approvals where token_hash = :token_hash and tenant_id = :tenant_id

-- name: settle_approval
update approvals set status = :status, decided_at = :now, decided_by = :by, decided_via = :via, comment = :comment,
  edited = :edited is not null, decision_payload = :edited where id = :approval_id

-- name: waits_on
-- Whether a job waits for this approval.
select 1 from job_waits where job_id = :job_id and subject_id = :approval_id
