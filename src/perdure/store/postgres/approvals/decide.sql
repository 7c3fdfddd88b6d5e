-- Deciding: once, by a person or by expiry. The job is locked before the approval.

-- name: fail_suspended
-- A job suspended without a lease is failed by an answer or by its absence.
update perdure.jobs set status = 'FAILED', prev_status = status, version = version + 1, finished_at = perdure.db_now(),
  updated_at = perdure.db_now(), error_message = :error, error_kind = :error_kind, note = :note::text::json
where id = :job_id and status in ('PARKED', 'WAITING_FOR_APPROVAL') returning id

-- name: lock_approval
select *, expires_at <= perdure.db_now() as expired from perdure.approvals
where id = :approval_id and tenant_id = :tenant_id for update

-- name: approval_of_token
select id, job_id from perdure.approvals where token_hash = :token_hash and tenant_id = :tenant_id

-- name: approval_job
-- only: postgres SQLite reads the whole approval, it holds every lock already
select id, job_id from perdure.approvals where id = :approval_id and tenant_id = :tenant_id

-- name: settle_approval
update perdure.approvals set status = :status, decided_at = perdure.db_now(), decided_by = :by,
  decided_via = :via, comment = :comment,
  edited = :edited_payload::text is not null, decision_payload = :edited_payload::text::json where id = :approval_id

-- name: waits_on
-- Whether a job waits for this approval.
select true from perdure.job_waits where job_id = :job_id and subject_id = :approval_id::uuid::text
