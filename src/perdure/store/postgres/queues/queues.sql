-- Pauses of queues. A claim looks at the open ones itself: see claim.sql.

-- name: pause_queue
-- No row: it is paused already.
insert into perdure.queue_pauses (id, tenant_id, queue, lane, paused_at, paused_by, paused_via, reason)
values (:id, :tenant_id, :queue, :lane, perdure.db_now(), :by, :via, :reason)
on conflict (lane) where resumed_at is null do nothing returning *

-- name: open_pause
select * from perdure.queue_pauses where lane = :lane and resumed_at is null

-- name: resume_queue
update perdure.queue_pauses set resumed_at = perdure.db_now(), resumed_by = :by, resumed_via = :via, resumed_reason = :reason
where lane = :lane and resumed_at is null returning *

-- name: list_pauses
-- The newest first.
select * from perdure.queue_pauses where tenant_id = :tenant_id and (:queue::text is null or queue = :queue)
  and (not :only_open::bool or resumed_at is null)
order by id desc limit :limit
