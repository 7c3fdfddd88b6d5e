-- Pauses of queues. A claim looks at the open ones itself: see claim.sql.

-- name: pause_queue
-- No row: it is paused already.
insert into queue_pauses (id, tenant_id, queue, lane, paused_at, paused_by, paused_via, reason)
values (:id, :tenant_id, :queue, :lane, :now, :by, :via, :reason)
on conflict (lane) where resumed_at is null do nothing returning *

-- name: open_pause
select * from queue_pauses where lane = :lane and resumed_at is null

-- name: resume_queue
update queue_pauses set resumed_at = :now, resumed_by = :by, resumed_via = :via, resumed_reason = :reason
where lane = :lane and resumed_at is null returning *

-- name: list_pauses
-- The newest first.
select * from queue_pauses where tenant_id = :tenant_id and (:queue is null or queue = :queue)
  and (not :only_open or resumed_at is null)
order by id desc limit :limit
