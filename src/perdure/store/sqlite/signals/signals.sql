-- Signals to jobs. Where the dialect differs: no row locks, because a transaction of the writer has the file for itself.

-- name: find_signal
-- A signal that was sent before: by its own id, or by the one its caller gave.
select * from signals where job_id = :job_id and (id = :id or caller_id = :caller_id)

-- name: insert_signal
insert into signals (id, tenant_id, job_id, key, payload, caller_id, actor, via, created_at)
values (:id, :tenant_id, :job_id, :key, :payload, :caller_id, :actor, :via, :now)

-- name: get_signal
select * from signals where id = :id

-- name: bound_signal
-- What a wait has taken.
select s.* from signals s where s.consumed_by_job_id = :job_id and s.wait_key = :wait_key and s.tenant_id = :tenant_id

-- name: list_signals
select * from signals where job_id = :job_id and tenant_id = :tenant_id and (not :pending or consumed_at is null)
order by created_at, id limit :limit

-- name: taken_signals
-- What a call took, whose event has this id.
select payload from job_events where job_id = :job_id and event_id = :event_id

-- name: take_signals
-- Without a wait.
update signals set consumed_by_job_id = job_id, consumed_at = :now where id in (select value from json_each(:ids))
