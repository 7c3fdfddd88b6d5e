-- What people and programs change about a job, or ask of the worker that runs it.

-- name: find_event
select version from job_events where job_id = :job_id and event_id = :event_id

-- name: request_cancel
update job_claims set cancel_requested_at = :now, cancel_note = :note where job_id = :job_id

-- name: drop_claim
delete from job_claims where job_id = :job_id

-- name: cancel_job
-- version: the version of the log's head
update jobs set status = 'CANCELLED', prev_status = status, version = :version + 1, next_retry_at = null,
  finished_at = :now, updated_at = :now, note = :note where id = :job_id

-- name: fenced_run
-- The run row of an attempt that a cancel took the lease from.
insert into job_incomplete_runs (job_id, attempt, worker_id, started_at, finished_at, outcome, error_message, error_kind)
values (:job_id, :attempt, :worker_id, :claimed_at, :now, 'CANCELLED', 'cancelled while it ran', 'cancelled')

-- name: answer_code_waits
update job_waits set answered_at = :now where job_id = :job_id and kind = 'code' and answered_at is null

-- name: waits_for_code
select 1 from job_waits where job_id = :job_id and kind = 'code' limit 1

-- name: waits_for_batch
-- Asked of PENDING jobs: of these only the callback of a batch has such a wait.
select 1 from job_waits where job_id = :job_id and kind = 'child' and answered_at is null limit 1

-- name: waiting_for_code
-- key: of the waits that this version has opened. queues, kinds: JSON arrays.
select distinct w.job_id from job_waits w join jobs j on j.id = w.job_id
where w.kind = 'code' and w.answered_at is null and j.status = 'PARKED' and j.tenant_id = :tenant_id
  and (:queues is null or j.queue in (select value from json_each(:queues))) and j.kind in (select value from json_each(:kinds)) and not exists (
    select 1 from job_waits o where o.job_id = w.job_id and o.kind = 'code' and o.key = :key)
order by w.job_id limit :limit

-- name: make_due
update job_queue set run_at = :now where job_id = :job_id and run_at > :now

-- name: make_due_job
-- The job row follows its queue row.
update jobs set prev_status = status, updated_at = :now,
  run_at = case when status = 'PENDING' then :now else run_at end,
  next_retry_at = case when status = 'RETRY' then :now end where id = :job_id
