-- Enqueueing: one job, or many at once. See enqueue.py and enqueue_many.py.
-- Lists of values are arrays, one element for each job. An array of one element holds for all rows; one of none is null for all
-- (unnest pads short arrays with nulls).

-- name: enqueue_many
-- It raises if a job is there already, and returns nothing: ids that come back would be a twentieth of the time.
insert into perdure.jobs (id, tenant_id, kind, queue, lane, goal, payload, payload_hash, priority, max_retries, run_at, deadline,
  idempotency_key, origin_id, origin_kind, note)
select u.id, coalesce(u.tenant_id, :tenant_ids[1]), coalesce(u.kind, :kinds[1]), coalesce(u.queue, :queues[1]),
  coalesce(u.lane, :lanes[1]), u.goal, coalesce(u.payload, :payloads[1])::json, u.payload_hash,
  coalesce(u.priority, :priorities[1]), coalesce(u.max_retries, :retry_limits[1]),
  coalesce(u.run_at, perdure.db_now() + coalesce(u.delay, :delays[1]) * interval '1 second'), u.deadline, u.key, u.origin_id,
  u.origin_kind, coalesce(u.note, :notes[1])::json
from unnest(:ids::uuid[], :tenant_ids::text[], :kinds::text[], :queues::text[], :lanes::text[], :goals::text[], :payloads::text[],
  :payload_hashes::text[], :priorities::smallint[], :retry_limits::smallint[], :run_ats::timestamptz[], :delays::float8[],
  :deadlines::timestamptz[], :keys::text[], :origin_ids::uuid[], :origin_kinds::text[], :notes::text[])
  u(id, tenant_id, kind, queue, lane, goal, payload, payload_hash, priority, max_retries, run_at, delay, deadline, key,
    origin_id, origin_kind, note)

-- name: add_many
-- only: postgres enqueue_many where some of the jobs, or of their idempotency keys, may be there already: the ids that come back
-- were inserted. It takes an eighth more time.
insert into perdure.jobs (id, tenant_id, kind, queue, lane, goal, payload, payload_hash, priority, max_retries, run_at, deadline,
  idempotency_key, origin_id, origin_kind, note)
select u.id, coalesce(u.tenant_id, :tenant_ids[1]), coalesce(u.kind, :kinds[1]), coalesce(u.queue, :queues[1]),
  coalesce(u.lane, :lanes[1]), u.goal, coalesce(u.payload, :payloads[1])::json, u.payload_hash,
  coalesce(u.priority, :priorities[1]), coalesce(u.max_retries, :retry_limits[1]),
  coalesce(u.run_at, perdure.db_now() + coalesce(u.delay, :delays[1]) * interval '1 second'), u.deadline, u.key, u.origin_id,
  u.origin_kind, coalesce(u.note, :notes[1])::json
from unnest(:ids::uuid[], :tenant_ids::text[], :kinds::text[], :queues::text[], :lanes::text[], :goals::text[], :payloads::text[],
  :payload_hashes::text[], :priorities::smallint[], :retry_limits::smallint[], :run_ats::timestamptz[], :delays::float8[],
  :deadlines::timestamptz[], :keys::text[], :origin_ids::uuid[], :origin_kinds::text[], :notes::text[])
  u(id, tenant_id, kind, queue, lane, goal, payload, payload_hash, priority, max_retries, run_at, delay, deadline, key,
    origin_id, origin_kind, note)
on conflict do nothing returning id

-- name: enqueue_one
-- only: postgres add_many for one job: arrays take a fifth of the time of a lone enqueue
insert into perdure.jobs (id, tenant_id, kind, queue, lane, goal, payload, payload_hash, priority, max_retries, run_at, deadline,
  idempotency_key, origin_id, origin_kind, note)
values (:id, :tenant_id, :kind, :queue, :lane, :goal, :payload::text::json, :payload_hash, :priority, :max_retries,
  coalesce(:run_at, perdure.db_now() + :delay::float8 * interval '1 second'), :deadline, :key, :origin_id, :origin_kind,
  :note::text::json)
on conflict do nothing returning id

-- name: find_enqueued
-- For each id that did not come back: the job of that id, or of that idempotency key and its payload, unless the hashes say
-- that is the same. One tenant may stand for all.
select u.n, j.id, j.other
from unnest(:ids::uuid[], :tenant_ids::text[], :kinds::text[], :keys::text[], :payload_hashes::text[])
  with ordinality u(id, tenant_id, kind, key, payload_hash, n)
join lateral (
  select id, null::text as other from perdure.jobs where id = u.id and tenant_id = coalesce(u.tenant_id, :tenant_ids[1])
  union all
  select id, case when payload_hash = u.payload_hash then null else payload::text end
  from perdure.jobs
  where tenant_id = coalesce(u.tenant_id, :tenant_ids[1]) and kind = u.kind and idempotency_key = u.key and id <> u.id
  limit 1) j on true

-- name: recorded_head
-- only: postgres SQLite's append_free is just this
-- The head of a log that a new job begins with.
update perdure.jobs set version = :version, prev_status = status where id = :job_id
