-- Changes of several jobs in one transaction, and edits.

-- name: job_to_edit
-- Its rows are locked.
select j.priority, j.run_at, j.next_retry_at, j.idempotency_key, j.kind, j.payload::text as payload, perdure.db_now() as now
from perdure.jobs j where j.id = :job_id

-- name: edit_job
-- The event and the values that stay null or are new, in one statement: the payload may change only together with an event.
with written as (
  insert into perdure.job_events (job_id, version, attempt, event_id, type, payload)
  select j.id, j.version + 1, j.attempt, :event_id, 'job_edited', :note::text::json from perdure.jobs j
  where j.id = :job_id and j.version = :version
  returning job_id, version
)
update perdure.jobs j set version = w.version, prev_status = j.status, updated_at = perdure.db_now(),
  priority = coalesce(:priority::smallint, j.priority),
  run_at = case when j.status = 'PENDING' then coalesce(:at::timestamptz, j.run_at) else j.run_at end,
  next_retry_at = case when j.status = 'RETRY' then coalesce(:at::timestamptz, j.next_retry_at) end,
  payload = coalesce(:payload::text::json, j.payload),
  payload_hash = case when :payload::text is null then j.payload_hash else :payload_hash::text end
from written w where j.id = w.job_id returning j.version

-- name: edit_queue_row
-- Its row in the queue, which a claim goes by. A job of a full key that gets another time is looked at again then.
update perdure.job_queue set priority = coalesce(:priority::smallint, priority), run_at = coalesce(:at::timestamptz, run_at),
  held = held and :at::timestamptz is null where job_id = :job_id

-- name: rerun_of
-- Those of these jobs that were run again.
select distinct origin_id as id from perdure.jobs where origin_id = any (:ids::uuid[]) and origin_kind = 'rerun'
