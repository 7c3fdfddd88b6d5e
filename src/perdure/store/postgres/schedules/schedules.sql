-- Schedules: what fires next, and what the last firing did.

-- name: put_schedule
-- With the times that it had, a schedule keeps its next firing. One that is paused stays so.
insert into perdure.schedules as s (tenant_id, id, kind, payload, cron, every, at, timezone, anchor, queue, priority, max_retries, concurrency_key,
  max_concurrent, overlap, catch_up, jitter, next_at, set_by)
values (:tenant_id, :id, :kind, :payload::text::json, :cron, :every, :at, :timezone, :anchor, :queue, :priority, :max_retries, :concurrency_key,
  :max_concurrent, :overlap, :catch_up, :jitter, :next_at, :set_by)
on conflict (tenant_id, id) do update set kind = excluded.kind, payload = excluded.payload, cron = excluded.cron,
  every = excluded.every, at = excluded.at, timezone = excluded.timezone, queue = excluded.queue, priority = excluded.priority,
  max_retries = excluded.max_retries, concurrency_key = excluded.concurrency_key,
  max_concurrent = excluded.max_concurrent, overlap = excluded.overlap, catch_up = excluded.catch_up, jitter = excluded.jitter,
  anchor = case when (s.cron, s.every, s.at, s.timezone) is not distinct from (excluded.cron, excluded.every, excluded.at, excluded.timezone)
    then s.anchor else excluded.anchor end,
  next_at = case when (s.cron, s.every, s.at, s.timezone) is not distinct from (excluded.cron, excluded.every, excluded.at, excluded.timezone)
    then s.next_at when s.paused_at is null then excluded.next_at end,
  set_by = excluded.set_by, updated_at = perdure.db_now()
returning *

-- name: get_schedule
select * from perdure.schedules where tenant_id = :tenant_id and id = :id

-- name: list_schedules
select * from perdure.schedules where tenant_id = :tenant_id and (:after::text is null or id > :after) order by id limit :limit

-- name: remove_schedule
delete from perdure.schedules where tenant_id = :tenant_id and id = :id returning id

-- name: pause_schedule
update perdure.schedules set paused_at = coalesce(paused_at, perdure.db_now()), next_at = null, updated_at = perdure.db_now()
where tenant_id = :tenant_id and id = :id returning *

-- name: resume_schedule
-- What is not paused is left as it is.
update perdure.schedules set next_at = case when paused_at is null then next_at else :next_at end, paused_at = null,
  updated_at = perdure.db_now()
where tenant_id = :tenant_id and id = :id returning *

-- name: due_schedules
-- live: whether the job of the last firing has not ended.
select s.*, perdure.db_now() as now, exists (select from perdure.jobs j where j.id = s.last_job_id and j.finished_at is null) as live
from perdure.schedules s
where s.tenant_id = :tenant_id and s.next_at <= perdure.db_now() + :ahead::float8 * interval '1 second' order by s.next_at, s.id limit :limit

-- name: lock_schedule
select s.*, exists (select from perdure.jobs j where j.id = s.last_job_id and j.finished_at is null) as live
from perdure.schedules s where s.tenant_id = :tenant_id and s.id = :id for update of s

-- name: schedule_fired
update perdure.schedules set next_at = :next_at, last_at = :at, last_job_id = :job_id
where tenant_id = :tenant_id and id = :id

-- name: schedule_skipped
update perdure.schedules set next_at = :next_at, skipped_at = :at, skipped = :skipped where tenant_id = :tenant_id and id = :id

-- name: job_of_key
-- only: postgres the twin's enqueue finds it
select id from perdure.jobs where tenant_id = :tenant_id and kind = :kind and idempotency_key = :key
