-- Enqueueing: one job, or many at once. See enqueue.py and enqueue_many.py. A parameter is named as the column it fills.

-- name: enqueue_many
-- Each parameter is an array, one element for each job. An array of one element holds for all rows, and one of none is null for all
-- (unnest pads short arrays with nulls); which of the two, enqueue_values.py says.
-- It raises if a job is there already, and returns nothing: `on conflict` and ids that come back would be a fifth of the time.
insert into perdure.jobs (id, tenant_id, kind, queue, lane, goal, payload, payload_hash, priority, max_retries, run_at, deadline,
  idempotency_key, origin_id, origin_kind, note, concurrency_key, max_concurrent, agent_id, session_id, tags)
select u.id, coalesce(u.tenant_id, :tenant_id[1]), coalesce(u.kind, :kind[1]), coalesce(u.queue, :queue[1]),
  coalesce(u.lane, :lane[1]), u.goal, coalesce(u.payload, :payload[1])::json, u.payload_hash,
  coalesce(u.priority, :priority[1]), u.max_retries,
  coalesce(u.run_at, perdure.db_now() + coalesce(u.delay, :delay[1]) * interval '1 second'), u.deadline, u.idempotency_key,
  u.origin_id, u.origin_kind, coalesce(u.note, :note[1])::json, u.concurrency_key, u.max_concurrent,
  u.agent_id, u.session_id, u.tags::json
from unnest(:id::uuid[], :tenant_id::text[], :kind::text[], :queue::text[], :lane::text[], :goal::text[], :payload::text[],
  :payload_hash::text[], :priority::smallint[], :max_retries::smallint[], :run_at::timestamptz[], :delay::float8[],
  :deadline::timestamptz[], :idempotency_key::text[], :origin_id::uuid[], :origin_kind::text[], :note::text[],
  :concurrency_key::text[], :max_concurrent::int[], :agent_id::text[], :session_id::text[],
  :tags::text[])
  u(id, tenant_id, kind, queue, lane, goal, payload, payload_hash, priority, max_retries, run_at, delay, deadline,
    idempotency_key, origin_id, origin_kind, note, concurrency_key, max_concurrent, agent_id, session_id, tags)

-- name: enqueue_one
-- only: postgres enqueue_joined for one job: the array takes a fifth of the time of a lone enqueue
insert into perdure.jobs (id, tenant_id, kind, queue, lane, goal, payload, payload_hash, priority, max_retries, run_at, deadline,
  idempotency_key, origin_id, origin_kind, note, concurrency_key, max_concurrent, agent_id, session_id, tags)
values (:id, :tenant_id, :kind, :queue, :lane, :goal, :payload::text::json, :payload_hash, :priority, :max_retries,
  coalesce(:run_at, perdure.db_now() + :delay::float8 * interval '1 second'), :deadline, :idempotency_key, :origin_id,
  :origin_kind, :note::text::json, :concurrency_key, :max_concurrent, :agent_id, :session_id,
  :tags::text::json)
on conflict do nothing returning id

-- name: find_enqueued
-- For each id that did not come back: the job of that id, or of that idempotency key and its payload, unless the hashes say
-- that is the same, or of that unique key. Each parameter is an array; one tenant may stand for all.
select u.n, j.id, j.other
from unnest(:id::uuid[], :tenant_id::text[], :kind::text[], :idempotency_key::text[], :payload_hash::text[], :unique_key::text[])
  with ordinality u(id, tenant_id, kind, idempotency_key, payload_hash, unique_key, n)
join lateral (
  select id, null::text as other from perdure.jobs where id = u.id and tenant_id = coalesce(u.tenant_id, :tenant_id[1])
  union all
  select id, case when payload_hash = u.payload_hash then null else payload::text end
  from perdure.jobs where tenant_id = coalesce(u.tenant_id, :tenant_id[1]) and kind = u.kind
    and idempotency_key = u.idempotency_key and id <> u.id
  union all
  select job_id, null from perdure.unique_keys where tenant_id = coalesce(u.tenant_id, :tenant_id[1]) and kind = u.kind
    and key = u.unique_key and job_id <> u.id
  limit 1) j on true

-- name: release_unique
-- The unique key of a job that has ended goes to a rerun of a job of that key, which is inserted next: its period goes on.
delete from perdure.unique_keys k where k.tenant_id = :tenant_id and k.kind = :kind and k.key = :key
  and exists (select 1 from perdure.jobs j where j.id = k.job_id and j.finished_at is not null)

-- name: release_key
-- The idempotency key of a dead job goes to its rerun, which is inserted next.
update perdure.jobs set idempotency_key = null
where id = :origin_id and tenant_id = :tenant_id and idempotency_key = :key and status in ('FAILED', 'DEADLETTER', 'CANCELLED')

-- name: recorded_head
-- only: postgres SQLite's append_free is just this
-- The head of a log that a new job begins with.
update perdure.jobs set version = :version, prev_status = status where id = :job_id
