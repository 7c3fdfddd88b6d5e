-- Enqueueing on a connection that belongs to the caller: psycopg or asyncpg, with any settings and type codecs. So each statement
-- has at most one parameter, the text of a JSON array in ASCII, and returns nothing but texts and booleans.

-- name: enqueue_joined
-- only: postgres the twin uses the statements of jobs/enqueue.sql on the caller's connection
-- As enqueue_many, where some of the jobs, or of their keys, may be there already: the ids that come back were inserted.
-- The trigger jobs_lane derives the lane. It names operators of pg_catalog, because the path of the caller may lead to others.
insert into perdure.jobs (id, tenant_id, kind, queue, goal, payload, payload_hash, priority, max_retries, run_at, deadline,
  idempotency_key, origin_id, origin_kind, note, concurrency_key, max_concurrent, agent_id, session_id, tags, unique_key,
  unique_until, on_conflict, parent_id)
select u.id, u.tenant_id, u.kind, u.queue, u.goal, u.payload::json, u.payload_hash, u.priority, u.max_retries,
  coalesce(u.run_at, perdure.db_now() operator(pg_catalog.+) (u.delay operator(pg_catalog.*) interval '1 second')), u.deadline,
  u.idempotency_key, u.origin_id, u.origin_kind, u.note::json, u.concurrency_key, u.max_concurrent,
  u.agent_id, u.session_id, u.tags::json, u.unique_key,
  perdure.db_now() operator(pg_catalog.+) (u.unique_period operator(pg_catalog.*) interval '1 second'), u.on_conflict,
  u.parent_id
from pg_catalog.json_to_recordset(:jobs::text::json)
  u(id uuid, tenant_id text, kind text, queue text, goal text, payload text, payload_hash text, priority smallint,
    max_retries smallint, run_at timestamptz, delay float8, deadline timestamptz, idempotency_key text, origin_id uuid,
    origin_kind text, note text, concurrency_key text, max_concurrent int, agent_id text, session_id text,
    tags text, unique_key text, unique_period float8, on_conflict text, parent_id uuid)
on conflict do nothing returning id::text

-- name: find_joined
-- only: postgres see enqueue_joined
-- As find_enqueued: which of them was meant, the job that is there, and whether it has the same payload: the caller's role need not
-- have the right to read payloads.
select u.id::text, j.id::text, coalesce(j.same, perdure.same_payload(u.tenant_id, u.kind, u.idempotency_key, u.payload))
from pg_catalog.json_to_recordset(:jobs::text::json)
  u(id uuid, tenant_id text, kind text, idempotency_key text, payload text, payload_hash text, unique_key text)
join lateral (
  select id, true as same from perdure.jobs
  where id operator(pg_catalog.=) u.id and tenant_id operator(pg_catalog.=) u.tenant_id
  union all
  select id, case when payload_hash operator(pg_catalog.=) u.payload_hash then true end from perdure.jobs
  where tenant_id operator(pg_catalog.=) u.tenant_id and kind operator(pg_catalog.=) u.kind
    and idempotency_key operator(pg_catalog.=) u.idempotency_key and id operator(pg_catalog.<>) u.id
  union all
  select h, true from perdure.unique_holder(u.tenant_id, u.kind, u.unique_key) h where h operator(pg_catalog.<>) u.id
  limit 1) j on true

-- name: begin_logs
-- What the logs of jobs begin with that this transaction has inserted. A function, as the caller's role may not write to the log.
select perdure.begin_logs(:events::text)

-- name: this_database
-- Which database a connection is in, read from catalogs that every role may read: an error would end the caller's transaction.
select datname::text, oid::text, pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'execute')
from pg_catalog.pg_database where datname operator(pg_catalog.=) pg_catalog.current_database()

-- name: this_server
-- only: postgres a file is known by its inode. Copies of a database agree in name and often in oid, but not in their cluster.
select system_identifier::text from pg_catalog.pg_control_system()
