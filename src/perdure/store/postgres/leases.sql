-- What workers do. Lock order everywhere: job_claims, then jobs, then approvals and waits, then job_queue; each by id.
-- The claim alone starts from the queue, so it locks queue and job rows together and skips what is locked.

-- name: claim
-- $1 lane, $2 limit, $3 worker id, $4 ttl (interval), $5 tenant
-- One index range per priority: 100k delayed jobs at priority 9 cost nothing. The sort key is the index order.
with picked as materialized (
  select x.job_id from generate_series(9, 1, -1) p(priority) cross join lateral (
    select q.job_id from perdure.job_queue q join perdure.jobs j on j.id = q.job_id
    where q.lane = $1 and q.priority = p.priority::smallint and q.run_at <= perdure.db_now()
    order by q.run_at, q.job_id limit $2 for update of q, j skip locked) x
  limit $2
), taken as (
  delete from perdure.job_queue q using picked p where q.job_id = p.job_id returning q.job_id
), moved as (
  update perdure.jobs j set status = 'RUNNING', prev_status = j.status, version = j.version + 1, attempt = j.attempt + 1,
    next_retry_at = null, started_at = coalesce(j.started_at, perdure.db_now()), updated_at = perdure.db_now(),
    note = json_build_object('worker', $3::text)
  from taken t where j.id = t.job_id and j.status in ('PENDING', 'RETRY', 'PARKED', 'WAITING_FOR_APPROVAL')
  returning j.id, j.kind, j.queue, j.goal, j.payload, j.priority, j.attempt, j.version, j.retry_count, j.max_retries,
    j.lost_starts, j.idempotency_key, j.deadline, j.created_at
), leased as (
  insert into perdure.job_claims (job_id, attempt, version, worker_id, ttl, expires_at)
  select id, attempt, version, $3, $4::interval, perdure.db_now() + $4::interval from moved
  on conflict (job_id) do update set attempt = excluded.attempt, version = excluded.version, worker_id = excluded.worker_id,
    ttl = excluded.ttl, claimed_at = excluded.claimed_at, expires_at = excluded.expires_at, started = false,
    cancel_requested_at = null, cancel_note = null
)
select m.*, perdure.db_now() as claimed_at from moved m

-- name: heartbeat
-- $1 job ids (sorted), $2 attempts, $3 ttl (interval), $4 ids that have started
with live as materialized (
  select k.job_id from perdure.job_claims k join unnest($1::uuid[], $2::int[]) u(id, attempt)
    on k.job_id = u.id and k.attempt = u.attempt
  where k.expires_at > perdure.db_now() order by k.job_id for update of k
)
update perdure.job_claims k set ttl = $3::interval, expires_at = perdure.db_now() + $3::interval,
  started = k.started or k.job_id = any($4::uuid[])
from live where k.job_id = live.job_id returning k.job_id

-- name: append_many
-- One event for each of several jobs: $1 job ids (sorted), $2 attempts, $3 event ids, $4 types, $5 payloads.
-- A job id that comes back is written; one that does not has lost its lease.
with heads as (
  update perdure.job_claims k set version = k.version + 1, started = true, expires_at = perdure.db_now() + k.ttl
  from unnest($1::uuid[], $2::int[], $3::uuid[], $4::text[], $5::text[]) u(id, attempt, event_id, type, payload)
  where k.job_id = u.id and k.attempt = u.attempt and k.expires_at > perdure.db_now()
  returning k.job_id, k.version, k.attempt, u.event_id, u.type, u.payload
)
insert into perdure.job_events (job_id, version, attempt, event_id, type, payload)
select job_id, version, attempt, event_id, type, payload::json from heads
returning job_id, version, created_at

-- name: append_chain
-- Several events of one job: $1 job id, $2 attempt, $3 event ids, $4 types, $5 payloads, in order (none: only the fence).
with head as (
  update perdure.job_claims k set version = k.version + cardinality($3::uuid[]), started = true,
    expires_at = perdure.db_now() + k.ttl
  where k.job_id = $1 and k.attempt = $2 and k.expires_at > perdure.db_now()
  returning k.job_id, k.attempt, k.version - cardinality($3::uuid[]) as base, k.version
), written as (
  insert into perdure.job_events (job_id, version, attempt, event_id, type, payload)
  select h.job_id, h.base + u.n::int, h.attempt, u.event_id, u.type, u.payload::json
  from head h cross join unnest($3::uuid[], $4::text[], $5::text[]) with ordinality u(event_id, type, payload, n)
)
select version, perdure.db_now() as created_at from head

-- name: find_event
select version, created_at from perdure.job_events where job_id = $1 and event_id = $2

-- name: patch_state
-- $1 job id, $2 checkpoint, $3 progress, $4 progress text, $5 tokens, $6 cost
insert into perdure.job_state (job_id, checkpoint, progress, progress_text, tokens, cost)
values ($1, $2::text::json, $3, $4, $5, $6)
on conflict (job_id) do update set checkpoint = coalesce(excluded.checkpoint, job_state.checkpoint),
  progress = coalesce(excluded.progress, job_state.progress),
  progress_text = coalesce(excluded.progress_text, job_state.progress_text),
  tokens = job_state.tokens + excluded.tokens, cost = job_state.cost + excluded.cost, updated_at = perdure.db_now()

-- name: open_wait
-- $1 job id, $2 key, $3 kind, $4 until, $5 approval id
insert into perdure.job_waits (job_id, key, kind, until, approval_id) values ($1, $2, $3, $4, $5)
on conflict (job_id, key) do update set until = excluded.until

-- name: close_waits
delete from perdure.job_waits where job_id = $1 and key = any($2::text[])

-- name: complete_many
-- The happy end: $1 job ids (sorted), $2 attempts, $3 results, $4 seconds user code ran
with done as (
  delete from perdure.job_claims k using unnest($1::uuid[], $2::int[], $3::text[], $4::float8[]) u(id, attempt, result, ran)
  where k.job_id = u.id and k.attempt = u.attempt and k.expires_at > perdure.db_now()
  returning k.job_id, k.attempt, k.version, k.worker_id, u.result, u.ran
), moved as (
  update perdure.jobs j set status = 'COMPLETED', prev_status = j.status, version = d.version + 1, result = d.result::json,
    finished_at = perdure.db_now(), updated_at = perdure.db_now(), note = json_build_object('worker', d.worker_id)
  from done d where j.id = d.job_id and j.status = 'RUNNING' returning j.id, j.attempt, d.worker_id, d.ran
)
insert into perdure.job_runs (job_id, attempt, worker_id, started_at, finished_at, outcome)
select id, attempt, worker_id, perdure.db_now() - ran * interval '1 second', perdure.db_now(), 'COMPLETED' from moved
returning job_id

-- name: settle_many
-- Every other end: $1 job ids (sorted), $2 attempts, $3 statuses, $4 errors, $5 error kinds, $6 delays (s), $7 uses a retry,
-- $8 reasons, $9 started, $10 seconds user code ran. A retry that is not left becomes DEADLETTER, without an increment.
with done as (
  delete from perdure.job_claims k
  using unnest($1::uuid[], $2::int[], $3::text[], $4::text[], $5::text[], $6::float8[], $7::bool[], $8::text[], $9::bool[],
    $10::float8[]) u(id, attempt, status, error, error_kind, delay, uses_retry, reason, started, ran)
  where k.job_id = u.id and k.attempt = u.attempt and k.expires_at > perdure.db_now()
  returning k.job_id, k.version, k.worker_id, k.cancel_note, u.*
), judged as (
  select d.*, case when d.status = 'RETRY' and d.uses_retry and j.retry_count >= j.max_retries then 'DEADLETTER'
    else d.status end::perdure.job_status as verdict
  from done d join perdure.jobs j on j.id = d.job_id
), moved as (
  update perdure.jobs j set status = g.verdict, prev_status = j.status, version = g.version + 1, updated_at = perdure.db_now(),
    retry_count = j.retry_count + (g.verdict = 'RETRY' and g.uses_retry)::int,
    lost_starts = case when g.started then 0 else j.lost_starts end,
    next_retry_at = case when g.verdict = 'RETRY' then perdure.db_now() + g.delay * interval '1 second' end,
    finished_at = case when g.verdict in ('FAILED', 'CANCELLED', 'DEADLETTER') then perdure.db_now() end,
    error_message = case when g.verdict in ('FAILED', 'DEADLETTER') then coalesce(g.error, g.reason, 'failed') end,
    error_kind = case when g.verdict = 'FAILED' then coalesce(g.error_kind, 'fatal')
      when g.verdict = 'DEADLETTER' then coalesce(g.error_kind, 'exhausted') end,
    note = case when g.verdict = 'CANCELLED' and g.cancel_note is not null then g.cancel_note
      else json_strip_nulls(json_build_object('worker', g.worker_id, 'reason', g.reason, 'error', g.error,
        'error_kind', g.error_kind, 'retry_count', case when g.verdict = 'RETRY' then j.retry_count + g.uses_retry::int end,
        'next_retry_at', case when g.verdict = 'RETRY' then perdure.db_now() + g.delay * interval '1 second' end)) end
  from judged g where j.id = g.job_id
  returning j.id, j.attempt, j.status, g.worker_id, g.started, g.ran, g.error, g.error_kind
), ran as (
  insert into perdure.job_runs (job_id, attempt, worker_id, started_at, finished_at, outcome, error_message, error_kind)
  select id, attempt, worker_id, perdure.db_now() - ran * interval '1 second', perdure.db_now(), status, error, error_kind
  from moved where started
)
select id, status::text from moved

-- name: was_settled
-- After a lost commit: did this attempt end, and how? $1 job id, $2 attempt, $3 worker id
select to_status::text as status from perdure.job_events
where job_id = $1 and attempt = $2 and to_status not in ('RUNNING', 'WAITING') and payload ->> 'worker' = $3
order by version desc limit 1

-- name: set_waiting
-- $1 job id, $2 attempt, $3 true = RUNNING to WAITING, false = back
with head as (
  update perdure.job_claims k set version = k.version + 1
  where k.job_id = $1 and k.attempt = $2 and k.expires_at > perdure.db_now() returning k.job_id, k.version, k.worker_id
)
update perdure.jobs j set status = case when $3::bool then 'WAITING' else 'RUNNING' end::perdure.job_status,
  prev_status = j.status, version = h.version, updated_at = perdure.db_now(), note = json_build_object('worker', h.worker_id)
from head h where j.id = h.job_id and j.status = case when $3::bool then 'RUNNING' else 'WAITING' end::perdure.job_status
returning j.id

-- name: cancel_requests
select job_id, attempt from perdure.job_claims
where worker_id = $1 and cancel_requested_at is not null and expires_at > perdure.db_now()

-- name: reap
-- $1 reaper's worker id, $2 limit, $3 losses of unstarted claims that are one too many, $4 tenant
with lost as materialized (
  select k.job_id, k.version, k.attempt, k.worker_id, k.started, k.claimed_at, k.cancel_requested_at, k.cancel_note
  from perdure.job_claims k join perdure.jobs j on j.id = k.job_id
  where (k.expires_at <= perdure.db_now() or k.cancel_requested_at <= perdure.db_now() - interval '10 seconds')
    and j.tenant_id = $4
  order by k.job_id limit $2 for update of k skip locked
), gone as (
  delete from perdure.job_claims k using lost l where k.job_id = l.job_id returning k.job_id
), judged as (
  select l.*, (case when l.cancel_requested_at is not null then 'CANCELLED'
      when l.started and j.retry_count >= j.max_retries then 'DEADLETTER'
      when not l.started and j.lost_starts + 1 >= $3 then 'DEADLETTER'
      else 'RETRY' end)::perdure.job_status as verdict
  from lost l join gone g on g.job_id = l.job_id join perdure.jobs j on j.id = l.job_id
), moved as (
  update perdure.jobs j set status = g.verdict, prev_status = j.status, version = g.version + 1, updated_at = perdure.db_now(),
    retry_count = j.retry_count + (g.verdict = 'RETRY' and g.started)::int,
    lost_starts = case when g.started then 0 else j.lost_starts + 1 end,
    next_retry_at = case when g.verdict = 'RETRY' then perdure.db_now() end,
    finished_at = case when g.verdict in ('CANCELLED', 'DEADLETTER') then perdure.db_now() end,
    error_message = case when g.verdict = 'DEADLETTER' then 'the lease of worker ' || g.worker_id || ' ran out' end,
    error_kind = case when g.verdict = 'DEADLETTER' then 'lease_lost' end,
    note = case when g.verdict = 'CANCELLED' then coalesce(g.cancel_note, '{}') else
      json_build_object('reason', 'lease_expired', 'lost_worker', g.worker_id, 'actor', 'worker:' || $1::text, 'door', 'reaper',
        'retry_count', j.retry_count + (g.verdict = 'RETRY' and g.started)::int) end
  from judged g where j.id = g.job_id
  returning j.id, j.attempt, j.status, j.error_message, g.worker_id, g.started, g.claimed_at
), ran as (
  insert into perdure.job_runs (job_id, attempt, worker_id, started_at, finished_at, outcome, error_message, error_kind)
  select id, attempt, worker_id, claimed_at, perdure.db_now(), status, coalesce(error_message, 'its lease ran out'), 'lease_lost'
  from moved where started
)
select id, status::text, worker_id from moved

-- name: expire_jobs
-- $1 limit, $2 tenant. Jobs nobody holds whose deadline has passed.
with late as materialized (
  select j.id from perdure.job_queue q join perdure.jobs j on j.id = q.job_id
  where q.deadline <= perdure.db_now() and j.tenant_id = $2 order by j.id limit $1 for update of q, j skip locked
)
update perdure.jobs j set status = 'FAILED', prev_status = j.status, version = j.version + 1, next_retry_at = null,
  updated_at = perdure.db_now(), finished_at = perdure.db_now(), error_kind = 'timeout',
  error_message = 'the deadline passed before it could finish',
  note = json_build_object('door', 'system', 'reason', 'deadline', 'error', 'the deadline passed before it could finish',
    'error_kind', 'timeout')
from late where j.id = late.id and j.status in ('PENDING', 'RETRY', 'PARKED', 'WAITING_FOR_APPROVAL') returning j.id
