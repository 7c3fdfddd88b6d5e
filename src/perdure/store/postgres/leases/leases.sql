-- What workers do. Lock order everywhere: job_claims, then jobs, then approvals and waits, then job_queue; each by id.
-- The claim alone starts from the queue, so it locks queue and job rows together and skips what is locked.
--
-- `id = any (array[x])` where `id = x` would do: a worker that starts on an idle system plans these statements, for good, while
-- job_claims and job_queue are empty. A plain equality can be turned round then (read the whole table, compare each row with
-- each item of the batch), or hashed where there are no statistics yet; this form leaves one plan, a probe of the key per item.

-- name: claim
-- $1 lane, $2 limit, $3 worker id, $4 ttl (interval), $5 tenant
-- $6 only this job (null: any), $7 note. One index range per priority: 100k delayed jobs at priority 9 cost nothing.
with picked as materialized (
  select x.job_id from generate_series(9, 1, -1) p(priority) cross join lateral (
    select q.job_id from perdure.job_queue q join perdure.jobs j on j.id = any (array[q.job_id])
    where q.lane = $1 and q.priority = p.priority::smallint and q.run_at <= perdure.db_now()
      and j.tenant_id = $5 and ($6::uuid is null or q.job_id = $6)
    order by q.run_at, q.job_id limit $2 for update of q, j skip locked) x
  limit $2
), taken as (
  delete from perdure.job_queue q using picked p where q.job_id = any (array[p.job_id]) returning q.job_id, q.run_at
), moved as (
  update perdure.jobs j set status = 'RUNNING', prev_status = j.status, version = j.version + 1, attempt = j.attempt + 1,
    next_retry_at = null, started_at = coalesce(j.started_at, perdure.db_now()), updated_at = perdure.db_now(),
    note = $7::json
  from taken t where j.id = any (array[t.job_id]) and j.status in ('PENDING', 'RETRY', 'PARKED', 'WAITING_FOR_APPROVAL')
  returning j.id, j.kind, j.queue, j.goal, j.payload, j.priority, j.attempt, j.version, j.retry_count, j.max_retries,
    j.lost_starts, j.idempotency_key, j.deadline, j.created_at, t.run_at
), leased as (
  insert into perdure.job_claims (job_id, tenant_id, attempt, version, worker_id, ttl, expires_at)
  select id, $5, attempt, version, $3, $4::interval, perdure.db_now() + $4::interval from moved
  on conflict (job_id) do update set attempt = excluded.attempt, version = excluded.version, worker_id = excluded.worker_id,
    ttl = excluded.ttl, claimed_at = excluded.claimed_at, expires_at = excluded.expires_at, started = false,
    cancel_requested_at = null, cancel_note = null
)
select m.id, m.attempt, m.kind, m.queue, m.goal, m.payload, m.priority, m.version, m.retry_count, m.max_retries,
  m.lost_starts, m.idempotency_key, m.deadline, m.created_at, perdure.db_now() as claimed_at,
  extract(epoch from perdure.db_now() - m.run_at)::float8 as waited
from moved m order by m.priority desc, m.run_at, m.id

-- name: claim_front
-- only: postgres for the rare claim that fails as a whole: which job would come first? $1 lane, $2 tenant
select q.job_id from perdure.job_queue q join perdure.jobs j on j.id = any (array[q.job_id])
where q.lane = $1 and q.run_at <= perdure.db_now() and j.tenant_id = $2
order by q.priority desc, q.run_at, q.job_id limit 1 for update of q, j skip locked

-- name: push_back
-- A job that cannot be claimed stands aside so that its lane goes on: $1 job id
update perdure.job_queue set run_at = perdure.db_now() + interval '5 minutes' where job_id = $1

-- name: next_due
-- $1 lanes. The front of each range of the ready index.
select extract(epoch from min(x.run_at) - perdure.db_now())::float8 as seconds
from unnest($1::text[]) l(lane) cross join generate_series(1, 9) p(priority) cross join lateral (
  select q.run_at from perdure.job_queue q where q.lane = l.lane and q.priority = p.priority::smallint
  order by q.run_at limit 1) x

-- name: may_vacuum
-- only: postgres see vacuum. What it would skip it says so in the server's log, each time: so it is asked for before.
select (select bool_and(pg_has_role(relowner, 'usage')) from pg_class
    where oid in ('perdure.job_queue'::regclass, 'perdure.job_claims'::regclass)) as owned,
  exists (select 1 from pg_locks where mode = 'ShareUpdateExclusiveLock'
    and database = (select oid from pg_database where datname = current_database())
    and relation in ('perdure.job_queue'::regclass, 'perdure.job_claims'::regclass)) as busy

-- name: vacuum
-- only: postgres SQLite leaves no dead rows
-- One at a time is enough, and shortening a table would wait for everybody who uses it.
vacuum (skip_locked, truncate off) perdure.job_queue, perdure.job_claims

-- name: heartbeat
-- $1 job ids (sorted), $2 attempts, $3 worker ids, $4 ttl (interval), $5 ids that have started, $6 tenant
-- Rows that somebody has locked are left out: one of them must not keep all others from being renewed.
with live as materialized (
  select k.job_id from perdure.job_claims k join unnest($1::uuid[], $2::int[], $3::text[]) u(id, attempt, worker_id)
    on k.job_id = any (array[u.id]) and k.attempt = u.attempt and k.worker_id = u.worker_id
  where k.tenant_id = $6 and k.expires_at > perdure.db_now() order by u.id for update of k skip locked
)
update perdure.job_claims k set ttl = $4::interval, expires_at = perdure.db_now() + $4::interval,
  started = k.started or k.job_id = any($5::uuid[])
from live where k.job_id = any (array[live.job_id]) returning k.job_id

-- name: still_held
-- only: postgres which of the leases that were not renewed are live all the same, their rows locked?
-- $1 job ids, $2 attempts, $3 worker ids, $4 tenant
select k.job_id from perdure.job_claims k join unnest($1::uuid[], $2::int[], $3::text[]) u(id, attempt, worker_id)
  on k.job_id = any (array[u.id]) and k.attempt = u.attempt and k.worker_id = u.worker_id
where k.tenant_id = $4 and k.expires_at > perdure.db_now()

-- name: append_many
-- One event for each of several jobs: $1 job ids (sorted), $2 attempts, $3 worker ids, $4 event ids, $5 types, $6 payloads,
-- $7 tenant. Of attempts, workers and types one element may stand for all (unnest pads short arrays with nulls).
-- A job id that comes back is written; one that does not has lost its lease.
with heads as (
  update perdure.job_claims k set version = k.version + 1, started = true, expires_at = perdure.db_now() + k.ttl
  from unnest($1::uuid[], $2::int[], $3::text[], $4::uuid[], $5::text[], $6::text[])
    u(id, attempt, worker_id, event_id, type, payload)
  where k.job_id = any (array[u.id]) and k.attempt = coalesce(u.attempt, $2[1])
    and k.worker_id = coalesce(u.worker_id, $3[1]) and k.tenant_id = $7 and k.expires_at > perdure.db_now()
  returning k.job_id, k.version, k.attempt, u.event_id, coalesce(u.type, $5[1]) as type, u.payload
)
insert into perdure.job_events (job_id, version, attempt, event_id, type, payload)
select job_id, version, attempt, event_id, type, payload::json from heads
returning job_id, version

-- name: append_one
-- only: postgres append_many for one job: arrays take a fifth of the time of a lone step
-- $1 job id, $2 attempt, $3 worker id, $4 event id, $5 type, $6 payload, $7 tenant
with head as (
  update perdure.job_claims k set version = k.version + 1, started = true, expires_at = perdure.db_now() + k.ttl
  where k.job_id = $1 and k.attempt = $2 and k.worker_id = $3 and k.tenant_id = $7 and k.expires_at > perdure.db_now()
  returning k.job_id, k.version, k.attempt
)
insert into perdure.job_events (job_id, version, attempt, event_id, type, payload)
select job_id, version, attempt, $4, $5, $6::text::json from head
returning version

-- name: advance_heads
-- only: postgres many callers' chains share one transaction: this fences them, insert_events writes them
-- $1 job ids (sorted), $2 attempts, $3 worker ids, $4 how many events of each (0: only the fence), $5 tenant
update perdure.job_claims k set version = k.version + u.events, started = true, expires_at = perdure.db_now() + k.ttl
from unnest($1::uuid[], $2::int[], $3::text[], $4::int[]) u(id, attempt, worker_id, events)
where k.job_id = any (array[u.id]) and k.attempt = u.attempt and k.worker_id = u.worker_id and k.tenant_id = $5
  and k.expires_at > perdure.db_now()
returning k.job_id, k.version

-- name: insert_events
-- only: postgres see advance_heads; joining heads and events in one statement would compare each with each
-- $1 job ids, $2 versions, $3 attempts, $4 event ids, $5 types, $6 payloads
insert into perdure.job_events (job_id, version, attempt, event_id, type, payload)
select id, version, attempt, event_id, type, payload::json
from unnest($1::uuid[], $2::int[], $3::int[], $4::uuid[], $5::text[], $6::text[]) u(id, version, attempt, event_id, type, payload)

-- name: find_event
select version from perdure.job_events where job_id = $1 and event_id = $2

-- name: patch_state
-- One row per array element, one per job: $1 job ids, $2 checkpoints, $3 progress, $4 progress texts, $5 tokens, $6 costs
insert into perdure.job_state (job_id, checkpoint, progress, progress_text, tokens, cost)
select id, checkpoint::json, progress, progress_text, tokens, cost
from unnest($1::uuid[], $2::text[], $3::float8[], $4::text[], $5::bigint[], $6::float8[])
  u(id, checkpoint, progress, progress_text, tokens, cost)
on conflict (job_id) do update set checkpoint = coalesce(excluded.checkpoint, job_state.checkpoint),
  progress = coalesce(excluded.progress, job_state.progress),
  progress_text = coalesce(excluded.progress_text, job_state.progress_text),
  tokens = job_state.tokens + excluded.tokens, cost = job_state.cost + excluded.cost, updated_at = perdure.db_now()

-- name: open_wait
-- One row per array element: $1 job ids, $2 keys, $3 kinds, $4 subject ids, $5 until. Opened again for the same subject, a wait
-- keeps its answer.
insert into perdure.job_waits as w (job_id, key, kind, subject_id, until)
select * from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::timestamptz[])
on conflict (job_id, key) do update set kind = excluded.kind, subject_id = excluded.subject_id, until = excluded.until,
  answered_at = case when (w.kind, w.subject_id) is not distinct from (excluded.kind, excluded.subject_id) then w.answered_at end

-- name: read_wait
-- An open wait of a leased job: $1 job id, $2 key, $3 tenant
select w.key, w.kind, w.subject_id, w.until, w.answered_at from perdure.job_waits w
join perdure.job_claims k on k.job_id = w.job_id where w.job_id = $1 and w.key = $2 and k.tenant_id = $3

-- name: close_waits
-- One row per array element: $1 job ids, $2 keys
delete from perdure.job_waits w using unnest($1::uuid[], $2::text[]) u(id, key) where w.job_id = any (array[u.id]) and w.key = u.key

-- name: complete_many
-- The happy end: $1 job ids (sorted), $2 attempts, $3 worker ids, $4 results, $5 seconds user code ran (null: it never did),
-- $6 tenant. Of attempts, workers and results one element may stand for all, as for append_many. The ids of those that moved come
-- back in one row: one row each would be a twentieth of the time.
-- No look at the status here: a transition that is illegal must fail as such, not vanish together with its claim.
with done as (
  delete from perdure.job_claims k
  using unnest($1::uuid[], $2::int[], $3::text[], $4::text[], $5::float8[]) u(id, attempt, worker_id, result, ran)
  where k.job_id = any (array[u.id]) and k.attempt = coalesce(u.attempt, $2[1])
    and k.worker_id = coalesce(u.worker_id, $3[1]) and k.tenant_id = $6 and k.expires_at > perdure.db_now()
  returning k.job_id, k.version, k.worker_id, case cardinality($4::text[]) when 1 then $4[1] else u.result end as result,
    u.ran
), moved as (
  update perdure.jobs j set status = 'COMPLETED', prev_status = j.status, version = d.version + 1, result = d.result::json,
    finished_at = perdure.db_now(), updated_at = perdure.db_now(), note = json_build_object('worker', d.worker_id)
  from done d where j.id = any (array[d.job_id]) returning j.id, j.attempt, d.worker_id, d.ran
), ran as (
  insert into perdure.job_runs (job_id, attempt, worker_id, started_at, finished_at, outcome)
  select id, attempt, worker_id, perdure.db_now() - ran * interval '1 second', perdure.db_now(), 'COMPLETED' from moved
  where ran is not null
)
select array_agg(id) as moved from moved

-- name: settle_many
-- Every other end: $1 job ids (sorted), $2 attempts, $3 worker ids, $4 statuses, $5 errors, $6 error kinds, $7 delays (s),
-- $8 uses a retry, $9 reasons, $10 started, $11 seconds user code ran, $12 tenant. A retry that is not left becomes DEADLETTER, without
-- an increment; an end that is none (RETRY, PARKED, ...) becomes CANCELLED where somebody asked for it.
with done as (
  delete from perdure.job_claims k
  using unnest($1::uuid[], $2::int[], $3::text[], $4::text[], $5::text[], $6::text[], $7::float8[], $8::bool[], $9::text[],
    $10::bool[], $11::float8[])
    u(id, attempt, worker_id, status, error, error_kind, delay, uses_retry, reason, started, ran)
  where k.job_id = any (array[u.id]) and k.attempt = u.attempt and k.worker_id = u.worker_id and k.tenant_id = $12
    and k.expires_at > perdure.db_now()
  returning k.job_id, k.version, k.cancel_note, u.*
), verdicts as (
  select d.*, case
    when d.cancel_note is not null and d.status in ('RETRY', 'PARKED', 'WAITING_FOR_APPROVAL') then 'CANCELLED'
    when d.status = 'RETRY' and d.uses_retry and j.retry_count >= j.max_retries then 'DEADLETTER'
    else d.status end::perdure.job_status as verdict
  from done d join perdure.jobs j on j.id = any (array[d.job_id])
), judged as (
  select v.job_id, v.version, v.cancel_note, v.worker_id, v.delay, v.uses_retry, v.reason, v.started, v.ran, v.verdict,
    case when v.verdict in ('FAILED', 'DEADLETTER') then coalesce(v.error, v.reason, 'failed') else v.error end as error,
    coalesce(v.error_kind, case v.verdict when 'FAILED' then 'fatal' when 'DEADLETTER' then 'exhausted' end) as error_kind
  from verdicts v
), moved as (
  update perdure.jobs j set status = g.verdict, prev_status = j.status, version = g.version + 1, updated_at = perdure.db_now(),
    retry_count = j.retry_count + (g.verdict = 'RETRY' and g.uses_retry)::int,
    lost_starts = case when g.started then 0 else j.lost_starts end,
    next_retry_at = case when g.verdict = 'RETRY' then perdure.db_now() + g.delay * interval '1 second' end,
    finished_at = case when g.verdict in ('FAILED', 'CANCELLED', 'DEADLETTER') then perdure.db_now() end,
    error_message = case when g.verdict in ('FAILED', 'DEADLETTER') then g.error end,
    error_kind = case when g.verdict in ('FAILED', 'DEADLETTER') then g.error_kind end,
    note = case when g.verdict = 'CANCELLED' and g.cancel_note is not null then g.cancel_note
      else json_strip_nulls(json_build_object('worker', g.worker_id, 'reason', g.reason, 'error', g.error,
        'error_kind', g.error_kind, 'retry_count', case when g.verdict = 'RETRY' then j.retry_count + g.uses_retry::int end,
        'next_retry_at', case when g.verdict = 'RETRY' then perdure.db_now() + g.delay * interval '1 second' end)) end
  from judged g where j.id = any (array[g.job_id])
  returning j.id, j.attempt, j.status, g.worker_id, g.started, g.ran, g.error, g.error_kind
), ran as (
  insert into perdure.job_runs (job_id, attempt, worker_id, started_at, finished_at, outcome, error_message, error_kind)
  select id, attempt, worker_id, perdure.db_now() - ran * interval '1 second', perdure.db_now(), status, error, error_kind
  from moved where started
)
select id, status::text from moved

-- name: was_settled
-- only: postgres a file's commit is never ambiguous
-- After a lost commit: how did this attempt end? The note says whose doing it was. $1 job id, $2 attempt.
-- The first transition out of the lease is the end of the attempt; later ones (a parked job is cancelled) are not.
-- The note is not looked into here: JSON with \u0000 in it is legal and cannot be taken apart by PostgreSQL.
select to_status::text as status, payload from perdure.job_events
where job_id = $1 and attempt = $2 and to_status not in ('RUNNING', 'WAITING') order by version limit 1

-- name: set_waiting
-- $1 job id, $2 attempt, $3 worker id, $4 true = RUNNING to WAITING, false = back, $5 tenant
with head as (
  update perdure.job_claims k set version = k.version + 1
  where k.job_id = $1 and k.attempt = $2 and k.worker_id = $3 and k.tenant_id = $5 and k.expires_at > perdure.db_now()
  returning k.job_id, k.version, k.worker_id
)
update perdure.jobs j set status = case when $4::bool then 'WAITING' else 'RUNNING' end::perdure.job_status,
  prev_status = j.status, version = h.version, updated_at = perdure.db_now(), note = json_build_object('worker', h.worker_id)
from head h where j.id = h.job_id and j.status = case when $4::bool then 'RUNNING' else 'WAITING' end::perdure.job_status
returning j.id

-- name: cancel_requests
select job_id, attempt from perdure.job_claims
where worker_id = $1 and tenant_id = $2 and cancel_requested_at is not null and expires_at > perdure.db_now()

-- name: reapable
-- only: postgres for the rare reaping that fails as a whole, to go on one by one: $1 limit, $2 tenant
select k.job_id from perdure.job_claims k
where (k.expires_at <= perdure.db_now() or k.cancel_requested_at <= perdure.db_now() - interval '10 seconds')
  and k.tenant_id = $2 order by k.job_id limit $1

-- name: reap
-- $1 reaper's worker id, $2 limit, $3 losses of unstarted claims that are one too many, $4 tenant, $5 only this job (null: any)
with lost as materialized (
  select k.job_id, k.version, k.attempt, k.worker_id, k.started, k.claimed_at, k.cancel_requested_at, k.cancel_note,
    k.expires_at <= perdure.db_now() as expired
  from perdure.job_claims k
  where (k.expires_at <= perdure.db_now() or k.cancel_requested_at <= perdure.db_now() - interval '10 seconds')
    and k.tenant_id = $4 and ($5::uuid is null or k.job_id = $5)
  order by k.job_id limit $2 for update of k skip locked
), gone as (
  delete from perdure.job_claims k using lost l where k.job_id = any (array[l.job_id]) returning k.job_id
), judged as (
  select l.*, (case when l.cancel_requested_at is not null then 'CANCELLED'
      when l.started and j.retry_count >= j.max_retries then 'DEADLETTER'
      when not l.started and j.lost_starts + 1 >= $3 then 'DEADLETTER'
      else 'RETRY' end)::perdure.job_status as verdict
  from lost l join gone g on g.job_id = l.job_id join perdure.jobs j on j.id = any (array[l.job_id])
), moved as (
  update perdure.jobs j set status = g.verdict, prev_status = j.status, version = g.version + 1, updated_at = perdure.db_now(),
    retry_count = j.retry_count + (g.verdict = 'RETRY' and g.started)::int,
    lost_starts = j.lost_starts + (not g.started)::int, -- kept by a started loss: only the first crash of a loop is free
    next_retry_at = case when g.verdict = 'RETRY' then perdure.db_now() end,
    finished_at = case when g.verdict in ('CANCELLED', 'DEADLETTER') then perdure.db_now() end,
    error_message = case when g.verdict = 'DEADLETTER' then 'the lease of worker ' || g.worker_id || ' ran out' end,
    error_kind = case when g.verdict = 'DEADLETTER' then 'lease_lost' end,
    note = case when g.verdict = 'CANCELLED' then coalesce(g.cancel_note, '{}') else
      json_strip_nulls(json_build_object('reason', 'lease_expired', 'lost_worker', g.worker_id, 'actor', 'worker:' || $1::text,
        'door', 'reaper', 'retry_count', j.retry_count + (g.verdict = 'RETRY' and g.started)::int,
        'error', case when g.verdict = 'DEADLETTER' then 'the lease of worker ' || g.worker_id || ' ran out' end,
        'error_kind', case when g.verdict = 'DEADLETTER' then 'lease_lost' end)) end
  from judged g where j.id = any (array[g.job_id])
  returning j.id, j.kind, j.attempt, j.status, j.error_message, g.worker_id, g.started, g.claimed_at, g.expired
), ran as (
  insert into perdure.job_runs (job_id, attempt, worker_id, started_at, finished_at, outcome, error_message, error_kind)
  select id, attempt, worker_id, claimed_at, perdure.db_now(), status,
    case when expired then coalesce(error_message, 'its lease ran out') else 'it did not stop when it was cancelled' end,
    case when expired then 'lease_lost' else 'cancelled' end
  from moved where started
)
select id, status::text, worker_id, kind from moved

-- name: expire_jobs
-- $1 limit, $2 tenant, $3 only this job (null: any). Jobs nobody holds whose deadline has passed.
with late as materialized (
  select j.id from perdure.job_queue q join perdure.jobs j on j.id = any (array[q.job_id])
  where q.deadline <= perdure.db_now() and j.tenant_id = $2 and ($3::uuid is null or q.job_id = $3)
  order by j.id limit $1 for update of q, j skip locked
)
update perdure.jobs j set status = 'FAILED', prev_status = j.status, version = j.version + 1, next_retry_at = null,
  updated_at = perdure.db_now(), finished_at = perdure.db_now(), error_kind = 'timeout',
  error_message = 'the deadline passed before it could finish',
  note = json_build_object('door', 'system', 'reason', 'deadline', 'error', 'the deadline passed before it could finish',
    'error_kind', 'timeout')
from late where j.id = any (array[late.id]) and j.status in ('PENDING', 'RETRY', 'PARKED', 'WAITING_FOR_APPROVAL') returning j.id

-- name: late_jobs
-- For the rare expire_jobs that fails as a whole, to go on one by one: $1 limit, $2 tenant
select q.job_id from perdure.job_queue q join perdure.jobs j on j.id = any (array[q.job_id])
where q.deadline <= perdure.db_now() and j.tenant_id = $2 order by j.id limit $1
