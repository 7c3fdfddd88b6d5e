-- What clients do with jobs.

-- name: enqueue_many
-- One row per array element. An array of one element holds for all rows; one of none is null for all (unnest pads short arrays
-- with nulls). It raises if a job is there already, and returns nothing: ids that come back would be a twentieth of the time.
-- `adding` in enqueueing.py makes of it what is used where jobs may be there.
insert into perdure.jobs (id, kind, queue, lane, goal, payload, payload_hash, priority, max_retries, run_at, deadline,
  idempotency_key, origin_id, origin_kind, note, tenant_id)
select u.id, coalesce(u.kind, $2[1]), coalesce(u.queue, $3[1]), coalesce(u.lane, $4[1]), u.goal,
  coalesce(u.payload, $6[1])::json, u.payload_hash, coalesce(u.priority, $8[1]),
  coalesce(u.max_retries, $9[1]), coalesce(u.run_at, perdure.db_now() + coalesce(u.delay, $11[1]) * interval '1 second'),
  u.deadline, u.key, u.origin_id, u.origin_kind, coalesce(u.note, $16[1])::json, $17
from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::smallint[],
  $9::smallint[], $10::timestamptz[], $11::float8[], $12::timestamptz[], $13::text[], $14::uuid[], $15::text[], $16::text[])
  u(id, kind, queue, lane, goal, payload, payload_hash, priority, max_retries, run_at, delay, deadline, key, origin_id,
    origin_kind, note)

-- name: enqueue_one
-- only: postgres enqueue_many for one job: arrays take a fifth of the time of a lone enqueue. $10 due, $11 else: seconds from now
insert into perdure.jobs (id, kind, queue, lane, goal, payload, payload_hash, priority, max_retries, run_at, deadline,
  idempotency_key, origin_id, origin_kind, note, tenant_id)
values ($1, $2, $3, $4, $5, $6::text::json, $7, $8, $9, coalesce($10, perdure.db_now() + $11::float8 * interval '1 second'), $12,
  $13, $14, $15, $16::text::json, $17)

-- name: find_enqueued
-- For ids that did not come back: the job of that id, or of that idempotency key and its payload, unless the hashes say that is
-- the same. $1 ids, $2 kinds, $3 keys, $4 tenant, $5 payload hashes
select u.n, j.id, j.other
from unnest($1::uuid[], $2::text[], $3::text[], $5::text[]) with ordinality u(id, kind, key, payload_hash, n)
join lateral (
  select id, null::text as other from perdure.jobs where id = u.id and tenant_id = $4
  union all
  select id, case when payload_hash = u.payload_hash then null else payload::text end
  from perdure.jobs where tenant_id = $4 and kind = u.kind and idempotency_key = u.key and id <> u.id
  limit 1) j on true

-- name: get_job
select j.*, coalesce(k.version, j.version) as head, s.checkpoint, s.progress, s.progress_text, s.tokens, s.cost,
  k.worker_id, k.expires_at, k.started as claim_started, k.cancel_requested_at, q.run_at as due_at,
  (select e.payload from perdure.job_events e where e.job_id = j.id and e.type = 'node_finished'
    order by e.version desc limit 1) as last_step,
  (select json_agg(json_build_object('key', w.key, 'kind', w.kind, 'subject_id', w.subject_id, 'until', w.until,
    'answered_at', w.answered_at)
    order by w.opened_at, w.key) from perdure.job_waits w where w.job_id = j.id) as waits
from perdure.jobs j left join perdure.job_claims k on k.job_id = j.id left join perdure.job_state s on s.job_id = j.id
left join perdure.job_queue q on q.job_id = j.id
where j.id = $1 and j.tenant_id = $2

-- name: find_job
-- The last digits of an id: $1 pattern, $2 tenant. A scan of the ids, newest first is not possible by suffix.
select id from perdure.jobs where right(replace(id::text, '-', ''), length($1)) = $1 and tenant_id = $2 limit 2

-- name: by_index
-- only: postgres for the rest of the transaction, read in the order of an index and stop when the page is full
select set_config(name, 'off', true)
from unnest(array['enable_seqscan', 'enable_sort', 'enable_hashagg', 'enable_hashjoin', 'enable_mergejoin',
  'enable_bitmapscan', 'enable_material']) name

-- name: list_jobs
-- $1 tenant, $2 before id, $3 statuses, $4 kinds, $5 queues, $6 since, $7 until, $8 search, $9 key, $10 limit,
-- $11 sources: all, or kind (the one that is asked for), or any of queue, due (the part of it that is), claims, waits and failures:
-- the small tables that name the jobs of some states.
-- Runs after by_index: the ids come from the indexes of those tables, merged, in the order wanted.
select j.*, coalesce(k.version, j.version) as head, s.checkpoint, s.progress, s.progress_text, s.tokens, s.cost,
  k.worker_id, k.expires_at, k.started as claim_started, k.cancel_requested_at, q.run_at as due_at,
  null::text as cursor, null::json as waits
from (
  select i.*, page.job_id as place from (
    select distinct job_id from (
      (select id as job_id from perdure.jobs where 'all' = any ($11::text[]) and ($2::uuid is null or id < $2) order by 1 desc)
      union all
      (select id from perdure.jobs where 'kind' = any ($11) and kind = ($4::text[])[1] and ($2::uuid is null or id < $2)
        order by 1 desc)
      union all
      (select job_id from perdure.job_queue where 'queue' = any ($11) and ($2::uuid is null or job_id < $2) order by 1 desc)
      union all
      (select job_id from perdure.job_queue where 'due' = any ($11) and ($2::uuid is null or job_id < $2)
        and run_at <= perdure.db_now() order by 1 desc)
      union all
      (select job_id from perdure.job_claims where 'claims' = any ($11) and ($2::uuid is null or job_id < $2) order by 1 desc)
      union all
      (select job_id from perdure.job_waits where 'waits' = any ($11) and ($2::uuid is null or job_id < $2) order by 1 desc)
      union all
      (select job_id from perdure.job_failures where 'failures' = any ($11) and ($2::uuid is null or job_id < $2) order by 1 desc)
    ) named order by job_id desc
  ) page join perdure.jobs i on i.id = any (array[page.job_id])
  where i.tenant_id = $1
    and ($3::text[] is null or i.status::text = any ($3)) and ($4::text[] is null or i.kind = any ($4))
    and ($5::text[] is null or i.queue = any ($5)) and ($6::timestamptz is null or i.created_at >= $6)
    and ($7::timestamptz is null or i.created_at < $7) and ($9::text is null or i.idempotency_key = $9)
    and ($8::text is null
      or position(lower($8) in lower(i.kind || ' ' || coalesce(i.goal, '') || ' ' || coalesce(i.error_message, ''))) > 0)
  order by page.job_id desc limit $10
) j
left join lateral (select * from perdure.job_claims where job_id = j.id offset 0) k on true
left join lateral (select * from perdure.job_state where job_id = j.id offset 0) s on true
left join lateral (select * from perdure.job_queue where job_id = j.id offset 0) q on true
order by j.place desc

-- name: count_jobs
-- $1 tenant, $2 group, then as list_jobs: $3 statuses, $4 kinds, $5 queues, $6 since, $7 until, $8 search, $9 key
select case $2 when 'status' then j.status::text when 'kind' then j.kind else j.queue end as grp, count(*) as n
from perdure.jobs j
where j.tenant_id = $1
  and ($3::text[] is null or j.status::text = any($3)) and ($4::text[] is null or j.kind = any($4))
  and ($5::text[] is null or j.queue = any($5)) and ($6::timestamptz is null or j.created_at >= $6)
  and ($7::timestamptz is null or j.created_at < $7) and ($9::text is null or j.idempotency_key = $9)
  and ($8::text is null or position(lower($8) in lower(j.kind || ' ' || coalesce(j.goal, '') || ' ' || coalesce(j.error_message, ''))) > 0)
group by 1

-- name: count_some_jobs
-- As count_jobs, where all wanted states are named by small tables: $10 those, as the sources of list_jobs. History is not read.
-- A plain join would be planned by statistics: without them, as a loop over all jobs for each that is named.
select case $2 when 'status' then j.status::text when 'kind' then j.kind else j.queue end as grp, count(*) as n
from (
  select job_id from perdure.job_queue where 'queue' = any ($10::text[])
  union select job_id from perdure.job_queue where 'due' = any ($10) and run_at <= perdure.db_now()
  union select job_id from perdure.job_claims where 'claims' = any ($10)
  union select job_id from perdure.job_waits where 'waits' = any ($10)
  union select job_id from perdure.job_failures where 'failures' = any ($10)
) named cross join lateral (select * from perdure.jobs where id = named.job_id offset 0) j
where j.tenant_id = $1
  and ($3::text[] is null or j.status::text = any($3)) and ($4::text[] is null or j.kind = any($4))
  and ($5::text[] is null or j.queue = any($5)) and ($6::timestamptz is null or j.created_at >= $6)
  and ($7::timestamptz is null or j.created_at < $7) and ($9::text is null or j.idempotency_key = $9)
  and ($8::text is null or position(lower($8) in lower(j.kind || ' ' || coalesce(j.goal, '') || ' ' || coalesce(j.error_message, ''))) > 0)
group by 1

-- name: list_runs
select r.* from perdure.job_runs r join perdure.jobs j on j.id = r.job_id
where r.job_id = $1 and j.tenant_id = $2 order by r.attempt

-- name: list_events
-- $1 job id, $2 after version, $3 limit, $4 types, $5 tenant
select e.* from perdure.job_events e join perdure.jobs j on j.id = e.job_id and j.tenant_id = $5
where e.job_id = $1 and e.version > $2 and ($4::text[] is null or e.type = any($4)) order by e.version limit $3

-- name: lock_claim
select tenant_id, attempt, version, worker_id, expires_at > perdure.db_now() as live, cancel_requested_at
from perdure.job_claims where job_id = $1 for update

-- name: lock_job
select status::text, version from perdure.jobs where id = $1 and tenant_id = $2 for update

-- name: append_free
-- To an unleased, locked job: $1 job id, $2 expected version, $3 event id, $4 type, $5 payload
with written as (
  insert into perdure.job_events (job_id, version, attempt, event_id, type, payload)
  select j.id, j.version + 1, j.attempt, $3, $4, $5::text::json from perdure.jobs j where j.id = $1 and j.version = $2
  returning job_id, version
)
update perdure.jobs j set version = w.version, prev_status = j.status, updated_at = perdure.db_now()
from written w where j.id = w.job_id returning j.version

-- name: append_leased
-- By perdure itself to a leased, locked job: $1 job id, $2 event id, $3 type, $4 payload
with head as (
  update perdure.job_claims k set version = k.version + 1 where k.job_id = $1 returning k.job_id, k.version, k.attempt
)
insert into perdure.job_events (job_id, version, attempt, event_id, type, payload)
select job_id, version, attempt, $2, $3, $4::text::json from head returning version

-- name: recorded_head
-- only: postgres SQLite's append_free is just this
-- The head of a log that a new job begins with: $1 job id, $2 version
update perdure.jobs set version = $2, prev_status = status where id = $1

-- name: request_cancel
update perdure.job_claims set cancel_requested_at = perdure.db_now(), cancel_note = $2::text::json where job_id = $1

-- name: drop_claim
delete from perdure.job_claims where job_id = $1 returning version, attempt, worker_id, started, claimed_at

-- name: cancel_job
-- $1 job id, $2 version of the log's head, $3 note
update perdure.jobs set status = 'CANCELLED', prev_status = status, version = $2 + 1, next_retry_at = null,
  finished_at = perdure.db_now(), updated_at = perdure.db_now(), note = $3::text::json where id = $1

-- name: fenced_run
-- The run row of an attempt that was fenced by a cancel: $1 job id, $2 attempt, $3 worker id, $4 claimed at
insert into perdure.job_runs (job_id, attempt, worker_id, started_at, finished_at, outcome, error_message, error_kind)
values ($1, $2, $3, $4, perdure.db_now(), 'CANCELLED', 'cancelled while it ran', 'cancelled')

-- name: make_due
update perdure.job_queue set run_at = perdure.db_now() where job_id = $1 and run_at > perdure.db_now() returning job_id

-- name: make_due_job
-- The job row follows its queue row: $1 job id
update perdure.jobs set prev_status = status, updated_at = perdure.db_now(),
  run_at = case when status = 'PENDING' then perdure.db_now() else run_at end,
  next_retry_at = case when status = 'RETRY' then perdure.db_now() end where id = $1

-- name: fail_suspended
-- A job suspended without a lease is failed by an answer or by its absence: $1 job id, $2 error, $3 error kind, $4 note
update perdure.jobs set status = 'FAILED', prev_status = status, version = version + 1, finished_at = perdure.db_now(),
  updated_at = perdure.db_now(), error_message = $2, error_kind = $3, note = $4::text::json
where id = $1 and status in ('PARKED', 'WAITING_FOR_APPROVAL') returning id
