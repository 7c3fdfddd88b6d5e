-- What people and programs change about a job, or ask of the worker that runs it.

-- name: request_cancel
update perdure.job_claims set cancel_requested_at = perdure.db_now(), cancel_note = :note::text::json where job_id = :job_id

-- name: drop_claim
delete from perdure.job_claims where job_id = :job_id returning version, attempt, worker_id, started, claimed_at

-- name: cancel_job
-- version: the head of its log
update perdure.jobs set status = 'CANCELLED', prev_status = status, version = :version + 1, next_retry_at = null,
  finished_at = perdure.db_now(), updated_at = perdure.db_now(), note = :note::text::json where id = :job_id

-- name: fenced_run
-- The run row of an attempt that was fenced by a cancel.
insert into perdure.job_incomplete_runs (job_id, attempt, worker_id, started_at, finished_at, outcome, error_message, error_kind)
values (:job_id, :attempt, :worker_id, :claimed_at, perdure.db_now(), 'CANCELLED', 'cancelled while it ran', 'cancelled')

-- name: answer_code_waits
update perdure.job_waits set answered_at = perdure.db_now() where job_id = :job_id and kind = 'code' and answered_at is null
returning key

-- name: waits_for_code
select true as waits from perdure.job_waits where job_id = :job_id and kind = 'code' limit 1

-- name: waits_for_batch
-- Asked of PENDING jobs: of these only the callback of a batch has such a wait.
select true as waits from perdure.job_waits where job_id = :job_id and kind = 'child' and answered_at is null limit 1

-- name: waiting_for_code
-- key: of the waits that this version has opened.
select distinct w.job_id from perdure.job_waits w join perdure.jobs j on j.id = any (array[w.job_id])
where w.kind = 'code' and w.answered_at is null and j.status = 'PARKED' and j.tenant_id = :tenant_id
  and (:queues::text[] is null or j.queue = any (:queues)) and j.kind = any (:kinds::text[]) and not exists (
    select 1 from perdure.job_waits o where o.job_id = w.job_id and o.kind = 'code' and o.key = :key)
order by w.job_id limit :limit

-- name: make_due
update perdure.job_queue set run_at = perdure.db_now() where job_id = :job_id and run_at > perdure.db_now() returning job_id

-- name: make_due_job
-- The job row follows its queue row.
update perdure.jobs set prev_status = status, updated_at = perdure.db_now(),
  run_at = case when status = 'PENDING' then perdure.db_now() else run_at end,
  next_retry_at = case when status = 'RETRY' then perdure.db_now() end where id = :job_id
