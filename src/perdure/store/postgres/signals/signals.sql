-- Signals to jobs. What writes has locked the job.

-- name: find_signal
-- A signal that was sent before: by its own id, or by the one its caller gave.
select * from perdure.signals where job_id = :job_id and (id = :id or caller_id = :caller_id)

-- name: insert_signal
insert into perdure.signals (id, tenant_id, job_id, key, payload, caller_id, actor, via)
values (:id, :tenant_id, :job_id, :key, :payload::text::json, :caller_id, :actor, :via)

-- name: get_signal
select * from perdure.signals where id = :id

-- name: bound_signal
-- What a wait has taken.
select * from perdure.signals where consumed_by_job_id = :job_id and wait_key = :wait_key and tenant_id = :tenant_id

-- name: list_signals
select * from perdure.signals where job_id = :job_id and tenant_id = :tenant_id and (not :pending::bool or consumed_at is null)
order by created_at, id limit :limit

-- name: taken_signals
-- What a call took, whose event has this id.
select payload::text as payload from perdure.job_events where job_id = :job_id and event_id = :event_id

-- name: take_signals
-- Without a wait.
update perdure.signals set consumed_by_job_id = job_id, consumed_at = perdure.db_now() where id = any (:ids::uuid[])
