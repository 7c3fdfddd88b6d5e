-- Enqueueing on a connection that belongs to the caller: psycopg or asyncpg, with any settings and type codecs. So each statement
-- has at most one parameter, the text of a JSON array in ASCII, and returns nothing but texts and booleans.

-- name: enqueue_joined
-- only: postgres the twin uses the statements of jobs/enqueue.sql on the caller's connection
-- As enqueue_many, where some of the jobs, or of their idempotency keys, may be there already: the ids that come back were inserted.
insert into perdure.jobs (id, tenant_id, kind, queue, lane, goal, payload, payload_hash, priority, max_retries, run_at, deadline,
  idempotency_key, origin_id, origin_kind, note)
select u.id, u.tenant_id, u.kind, u.queue, u.lane, u.goal, u.payload::json, u.payload_hash, u.priority, u.max_retries,
  coalesce(u.run_at, perdure.db_now() + u.delay * interval '1 second'), u.deadline, u.idempotency_key, u.origin_id,
  u.origin_kind, u.note::json
from json_to_recordset(:jobs::text::json)
  u(id uuid, tenant_id text, kind text, queue text, lane text, goal text, payload text, payload_hash text, priority smallint,
    max_retries smallint, run_at timestamptz, delay float8, deadline timestamptz, idempotency_key text, origin_id uuid,
    origin_kind text, note text)
on conflict do nothing returning id::text

-- name: find_joined
-- only: postgres see enqueue_joined
-- As find_enqueued: which of them was meant, the job that is there, and its payload.
select u.id::text, j.id::text, j.other from json_to_recordset(:jobs::text::json)
  u(id uuid, tenant_id text, kind text, idempotency_key text, payload_hash text)
join lateral (
  select id, null::text as other from perdure.jobs where id = u.id and tenant_id = u.tenant_id
  union all
  select id, case when payload_hash = u.payload_hash then null else payload::text end
  from perdure.jobs
  where tenant_id = u.tenant_id and kind = u.kind and idempotency_key = u.idempotency_key and id <> u.id
  limit 1) j on true

-- name: this_database
-- Which database a connection is in, read from catalogs that every role may read: an error would end the caller's transaction.
select datname::text, oid::text, has_function_privilege('pg_catalog.pg_control_system()', 'execute')
from pg_catalog.pg_database where datname = current_database()

-- name: this_server
-- only: postgres a file is known by its inode. Copies of a database agree in name and often in oid, but not in their cluster.
select system_identifier::text from pg_catalog.pg_control_system()
