-- Enqueueing. Where the dialect differs: no row locks, because a transaction of the writer has the file for itself; database time
-- is a parameter, read once per transaction. A caller's connection may have temporary tables of any name, hence `main`, and may convert
-- values by the type of their column, which || hides.

-- name: enqueue_many
-- Nothing happens where the id is there already. The key must have been looked for before.
insert into main.jobs (id, tenant_id, kind, queue, lane, goal, payload, payload_hash, priority, max_retries, run_at, deadline,
  idempotency_key, origin_id, origin_kind, note, concurrency_key, max_concurrent, agent_id, session_id, tags,
  created_at, updated_at)
values :rows(id, tenant_id, kind, queue, lane, goal, payload, payload_hash, priority, max_retries, run_at, deadline,
  idempotency_key, origin_id, origin_kind, note, concurrency_key, max_concurrent, agent_id, session_id, tags,
  :now, :now)
on conflict (id) do nothing

-- name: enqueue_more
-- only: sqlite enqueue_joined has these columns there
-- A job with a unique key or a parent. Nothing happens where another job has the key: see the trigger jobs_unique_taken.
insert into main.jobs (id, tenant_id, kind, queue, lane, goal, payload, payload_hash, priority, max_retries, run_at, deadline,
  idempotency_key, origin_id, origin_kind, note, concurrency_key, max_concurrent, agent_id, session_id, tags,
  unique_key, unique_until, on_conflict, parent_id, created_at, updated_at)
values :rows(id, tenant_id, kind, queue, lane, goal, payload, payload_hash, priority, max_retries, run_at, deadline,
  idempotency_key, origin_id, origin_kind, note, concurrency_key, max_concurrent, agent_id, session_id, tags,
  unique_key, unique_until, on_conflict, parent_id, :now, :now)
on conflict (id) do nothing

-- name: release_unique
-- The unique key of a job that has ended goes to a rerun of a job of that key, which is inserted next: its period goes on.
delete from unique_keys where unique_keys.tenant_id = :tenant_id and unique_keys.kind = :kind and unique_keys.key = :key
  and exists (select 1 from jobs j where j.id = unique_keys.job_id and j.finished_at is not null)

-- name: release_key
-- The idempotency key of a dead job goes to its rerun, which is inserted next.
update jobs set idempotency_key = null
where id = :origin_id and tenant_id = :tenant_id and idempotency_key = :key and status in ('FAILED', 'DEADLETTER', 'CANCELLED')

-- name: find_enqueued
-- The job of that id, or of that idempotency key and its payload, unless the hashes say that is the same, or of that unique key.
select id || '' as id, null as other from main.jobs where id = :id and tenant_id = :tenant_id
union all
select id || '', case when payload_hash = :payload_hash then null else payload || '' end from main.jobs
where tenant_id = :tenant_id and kind = :kind and idempotency_key = :key and id <> :id
union all
select job_id || '', null from main.unique_keys
where tenant_id = :tenant_id and kind = :kind and key = :unique_key and job_id <> :id
limit 1
