-- A job as the running transaction finds it. Where the dialect differs: no row locks, because a transaction of the writer has
-- the file for itself.

-- name: lock_claim
select attempt, version, worker_id, expires_at, started, claimed_at, cancel_requested_at from job_claims where job_id = :job_id

-- name: lock_job
select status, version, attempt from jobs where id = :job_id and tenant_id = :tenant_id

-- name: append_free
-- The head of an unleased job's log follows the event that append_many wrote.
update jobs set version = :version, prev_status = status, updated_at = :now where id = :job_id

-- name: append_leased
-- The head of a leased job's log follows an event of perdure's own.
update job_claims set version = :version where job_id = :job_id
