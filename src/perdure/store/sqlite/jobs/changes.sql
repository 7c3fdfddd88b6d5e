-- Changes of several jobs in one transaction, and edits.

-- name: job_to_edit
select j.priority, j.run_at, j.next_retry_at, j.idempotency_key, j.kind, j.payload from jobs j where j.id = :job_id

-- name: edit_job
-- Its event is written. The values that stay null or are new, with the version: the payload may change only together with an event.
update jobs set version = :version, prev_status = status, updated_at = :now, priority = coalesce(:priority, priority),
  run_at = case when status = 'PENDING' then coalesce(:at, run_at) else run_at end,
  next_retry_at = case when status = 'RETRY' then coalesce(:at, next_retry_at) end,
  payload = coalesce(:payload, payload), payload_hash = iif(:payload is null, payload_hash, :payload_hash)
where id = :job_id

-- name: edit_queue_row
-- Its row in the queue, which a claim goes by. A job of a full key that gets another time is looked at again then.
update job_queue set priority = coalesce(:priority, priority), run_at = coalesce(:at, run_at), held = iif(:at is null, held, 0)
where job_id = :job_id

-- name: rerun_of
-- Those of these jobs (ids: JSON array) that were run again.
select distinct origin_id as id from jobs where origin_id in (select value from json_each(:ids)) and origin_kind = 'rerun'
