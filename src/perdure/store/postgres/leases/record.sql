-- The holder's durable writes, for all callers that arrived meanwhile. Lock order everywhere: job_claims, then jobs, then approvals
-- and waits, then job_queue; each by id. Lists of values are arrays, one element for each item, sorted by job id.
--
-- `id = any (array[x])` where `id = x` would do: a worker that starts on an idle system plans these statements, for good, while
-- job_claims and job_queue are empty. A plain equality can be turned round then (read the whole table, compare each row with
-- each item of the batch), or hashed where there are no statistics yet; this form leaves one plan, a probe of the key per item.

-- name: append_many
-- One event for each of several jobs. Of tenants, attempts, workers and types one element may stand for all (unnest pads short
-- arrays with nulls). A job id that comes back is written; one that does not has lost its lease.
with heads as (
  update perdure.job_claims k set version = k.version + 1, started = true, expires_at = least(perdure.db_now() + k.ttl, k.ends_at)
  from unnest(:ids::uuid[], :tenant_ids::text[], :attempts::int[], :worker_ids::text[], :event_ids::uuid[], :types::text[],
    :payloads::text[]) u(id, tenant_id, attempt, worker_id, event_id, type, payload)
  where k.job_id = any (array[u.id]) and k.attempt = coalesce(u.attempt, :attempts[1])
    and k.worker_id = coalesce(u.worker_id, :worker_ids[1]) and k.tenant_id = coalesce(u.tenant_id, :tenant_ids[1])
    and k.expires_at > perdure.db_now()
  returning k.job_id, k.version, k.attempt, u.event_id, coalesce(u.type, :types[1]) as type, u.payload
)
insert into perdure.job_events (job_id, version, attempt, event_id, type, payload)
select job_id, version, attempt, event_id, type, payload::json from heads
returning job_id, version

-- name: append_one
-- only: postgres append_many for one job: arrays take a fifth of the time of a lone step
with head as (
  update perdure.job_claims k set version = k.version + 1, started = true, expires_at = least(perdure.db_now() + k.ttl, k.ends_at)
  where k.job_id = :job_id and k.attempt = :attempt and k.worker_id = :worker_id and k.tenant_id = :tenant_id
    and k.expires_at > perdure.db_now()
  returning k.job_id, k.version, k.attempt
)
insert into perdure.job_events (job_id, version, attempt, event_id, type, payload)
select job_id, version, attempt, :event_id, :type, :payload::text::json from head
returning version

-- name: advance_heads
-- only: postgres many callers' chains share one transaction: this fences them, insert_events writes them
-- counts: how many events of each item; 0 only fences.
update perdure.job_claims k set version = k.version + u.events, started = true,
  expires_at = least(perdure.db_now() + k.ttl, k.ends_at)
from unnest(:ids::uuid[], :tenant_ids::text[], :attempts::int[], :worker_ids::text[], :counts::int[])
  u(id, tenant_id, attempt, worker_id, events)
where k.job_id = any (array[u.id]) and k.attempt = u.attempt and k.worker_id = u.worker_id and k.tenant_id = u.tenant_id
  and k.expires_at > perdure.db_now()
returning k.job_id, k.version

-- name: insert_events
-- only: postgres see advance_heads; joining heads and events in one statement would compare each with each
insert into perdure.job_events (job_id, version, attempt, event_id, type, payload)
select id, version, attempt, event_id, type, payload::json
from unnest(:ids::uuid[], :versions::int[], :attempts::int[], :event_ids::uuid[], :types::text[], :payloads::text[])
  u(id, version, attempt, event_id, type, payload)

-- name: find_event
select version from perdure.job_events where job_id = :job_id and event_id = :event_id
