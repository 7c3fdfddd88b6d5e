-- Enqueueing on a connection that belongs to the caller, who may have temporary tables of any name: hence `main`.

-- name: enqueue_joined
-- One job. The first statement that a transaction runs here must be a write: one that has read before may be told that the
-- database is locked, at once, because somebody else wrote meanwhile. So the clock and the key are read by the insert itself.
insert into main.jobs (id, tenant_id, kind, queue, lane, goal, payload, payload_hash, priority, max_retries, run_at, deadline,
  idempotency_key, origin_id, origin_kind, note, created_at, updated_at)
select :id, :tenant, :kind, :queue, :lane, :goal, :payload, :payload_hash, :priority, :max_retries,
  coalesce(:run_at, now + :delay), :deadline, :key, :origin_id, :origin_kind, :note, now, now
from main.clock
where not exists (select 1 from main.jobs where tenant_id = :tenant and kind = :kind and idempotency_key = :key)
on conflict (id) do nothing
returning id

-- name: find_joined
-- As find_enqueued. || hides a column's type from the converters of the caller's connection.
select id || '', null from main.jobs where id = :id and tenant_id = :tenant
union all
select id || '', case when payload_hash = :payload_hash then null else payload || '' end from main.jobs
where tenant_id = :tenant and kind = :kind and idempotency_key = :key and id <> :id
limit 1

-- name: this_database
pragma database_list
