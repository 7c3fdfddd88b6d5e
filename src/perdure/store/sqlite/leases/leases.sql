-- What workers do. Where the dialect differs: a transaction of the writer has the file for itself, so each operation first
-- looks, then writes, without locks; what the twin says in one statement is a few short ones here. Where many rows are written,
-- many.py repeats `values (?, ...)` for them.

-- name: claim
-- What is due in a lane, the highest priority first: one index range for each, so that 100k delayed jobs at priority 9 cost
-- nothing; the limit is met before the lower ones are looked at. A row of a job that cannot start is stale: it comes along to be
-- deleted. Each answer is one JSON array (see many.py): all ids, those of jobs that start, their rows, the ids among them whose
-- payload is large: it is fetched by itself; and, left out of all these, the ids of another tenant's jobs.
with due as not materialized (
  select priority, run_at, job_id from job_queue where lane = :lane and run_at <= :now
), front as (
    select * from (select * from due where priority = 9 order by run_at, job_id limit :limit)
    union all select * from (select * from due where priority = 8 order by run_at, job_id limit :limit)
    union all select * from (select * from due where priority = 7 order by run_at, job_id limit :limit)
    union all select * from (select * from due where priority = 6 order by run_at, job_id limit :limit)
    union all select * from (select * from due where priority = 5 order by run_at, job_id limit :limit)
    union all select * from (select * from due where priority = 4 order by run_at, job_id limit :limit)
    union all select * from (select * from due where priority = 3 order by run_at, job_id limit :limit)
    union all select * from (select * from due where priority = 2 order by run_at, job_id limit :limit)
    union all select * from (select * from due where priority = 1 order by run_at, job_id limit :limit)
    limit :limit
), looked_at as (
  select j.*, f.job_id, f.run_at as due_at, length(j.payload) > 8192 as bulky, coalesce(j.tenant_id <> :tenant, 0) as stray,
    j.tenant_id = :tenant and j.status in ('PENDING', 'RETRY', 'PARKED', 'WAITING_FOR_APPROVAL') as starts
  from front f left join jobs j on j.id = f.job_id
)
select json_group_array(job_id) filter (where not stray) as found, json_group_array(job_id) filter (where starts) as ids,
  json_group_array(json_array(id, attempt + 1, kind, queue, goal, iif(bulky, null, payload), priority, version + 1, retry_count,
    max_retries, lost_starts, idempotency_key, deadline, created_at, :now, (:now - due_at) / 1000000.0)) filter (where starts) as jobs,
  json_group_array(id) filter (where starts and bulky) as large, json_group_array(job_id) filter (where stray) as strays
from looked_at

-- name: large_payloads
-- only: sqlite see claim: JSON array of ids
select id, payload from jobs where id in (select value from json_each(?))

-- name: claim_take
-- only: sqlite the claim's second step: JSON array of ids
delete from job_queue where job_id in (select value from json_each(?))

-- name: claim_move
-- only: sqlite the claim's third step: now, now, note, JSON array of ids
update jobs set status = 'RUNNING', prev_status = status, version = version + 1, attempt = attempt + 1,
  next_retry_at = null, started_at = coalesce(started_at, ?), updated_at = ?, note = ? where id in (select value from json_each(?))

-- name: claim_lease
-- only: sqlite the claim's last step: worker id, ttl, now, expires at, JSON array of ids
insert into job_claims (job_id, tenant_id, attempt, version, worker_id, ttl, claimed_at, expires_at)
select j.id, j.tenant_id, j.attempt, j.version, ?, ?, ?, ? from json_each(?) e cross join jobs j on j.id = e.value where true
on conflict (job_id) do update set attempt = excluded.attempt, version = excluded.version, worker_id = excluded.worker_id,
  ttl = excluded.ttl, claimed_at = excluded.claimed_at, expires_at = excluded.expires_at, started = 0,
  cancel_requested_at = null, cancel_note = null

-- name: push_back
-- A job that cannot be claimed stands aside so that its lane goes on: until, job id
update job_queue set run_at = ? where job_id = ?

-- name: live_claims
-- only: sqlite the fence, looked at before anything is written: JSON array of job ids, now, tenant. One JSON array of arrays.
select json_group_array(json_array(k.job_id, k.attempt, k.worker_id, k.version, k.cancel_note))
from json_each(?) e cross join job_claims k on k.job_id = e.value where k.expires_at > ? and k.tenant_id = ?

-- name: held_heads
-- only: sqlite live_claims of one holder, as one JSON object: JSON array of job ids, worker, attempt, now, tenant
select json_group_object(k.job_id, k.version) from json_each(?) e cross join job_claims k on k.job_id = e.value
where k.worker_id = ? and k.attempt = ? and k.expires_at > ? and k.tenant_id = ?

-- name: next_due
-- JSON array of lanes. The front of each range of the ready index; microseconds.
select min(x.run_at) - (select now from clock) as left from (
  select (select q.run_at from job_queue q where q.lane = l.value and q.priority = p.value order by q.run_at limit 1) as run_at
  from json_each(?) l cross join json_each('[1, 2, 3, 4, 5, 6, 7, 8, 9]') p) x

-- name: heartbeat
-- ttl, expires at, then of each lease: job id, started
update job_claims set ttl = ?, expires_at = ?, started = started or v.column2 from (values (?, ?)) v where job_id = v.column1

-- name: append_many
-- One event of a job: job id, version, time, attempt, event id, type, payload
insert into job_events (job_id, version, created_at, attempt, event_id, type, payload) values (?, ?, ?, ?, ?, ?, ?)

-- name: append_head
-- only: sqlite the holder's head follows its events: now, then of each job: id, version
update job_claims set version = v.column2, started = 1, expires_at = ? + ttl from (values (?, ?)) v where job_id = v.column1

-- name: find_event
select version from job_events where job_id = ? and event_id = ?

-- name: patch_state
-- job id, checkpoint, progress, progress text, tokens, cost, now
insert into job_state (job_id, checkpoint, progress, progress_text, tokens, cost, updated_at) values (?, ?, ?, ?, ?, ?, ?)
on conflict (job_id) do update set checkpoint = coalesce(excluded.checkpoint, job_state.checkpoint),
  progress = coalesce(excluded.progress, job_state.progress),
  progress_text = coalesce(excluded.progress_text, job_state.progress_text),
  tokens = job_state.tokens + excluded.tokens, cost = job_state.cost + excluded.cost, updated_at = excluded.updated_at

-- name: open_wait
-- Opened again for the same subject, a wait keeps its answer.
insert into job_waits as w (job_id, key, kind, subject_id, until, opened_at)
values (:job_id, :key, :kind, :subject_id, :until, :now)
on conflict (job_id, key) do update set kind = excluded.kind, subject_id = excluded.subject_id, until = excluded.until,
  answered_at = case when w.kind = excluded.kind and w.subject_id is excluded.subject_id then w.answered_at end

-- name: read_wait
-- An open wait of a leased job.
select w.key, w.kind, w.subject_id, w.until, w.answered_at from job_waits w
join job_claims k on k.job_id = w.job_id where w.job_id = :job_id and w.key = :key and k.tenant_id = :tenant

-- name: close_waits
delete from job_waits where (job_id, key) in (values (?, ?))

-- name: complete_many
-- The happy end: now, now, note, then of each job: id, version, result
update jobs set status = 'COMPLETED', prev_status = status, finished_at = ?, updated_at = ?, note = ?, version = v.column2,
  result = v.column3 from (values (?, ?, ?)) v where id = v.column1

-- name: drop_claims
-- only: sqlite of many jobs, a JSON array of their ids; drop_claim is that of one
delete from job_claims where job_id in (select value from json_each(?))

-- name: add_run
-- only: sqlite the twin writes it in the statement that ends the attempt
insert into job_runs (job_id, attempt, worker_id, started_at, finished_at, outcome, error_message, error_kind)
values (?, ?, ?, ?, ?, ?, ?, ?)

-- name: add_completed_runs
-- only: sqlite add_run for those that complete, while their claims are there: now, now, JSON object of job ids and microseconds
insert into job_runs (job_id, attempt, worker_id, started_at, finished_at, outcome)
select k.job_id, k.attempt, k.worker_id, ? - e.value, ?, 'COMPLETED' from json_each(?) e cross join job_claims k on k.job_id = e.key

-- name: retries
-- only: sqlite what the verdict over a failed or lost attempt needs
select retry_count, max_retries, lost_starts from jobs where id = ?

-- name: settle_many
-- Every other end.
update jobs set status = :status, prev_status = status, version = :version, retry_count = :retry_count,
  lost_starts = :lost_starts, next_retry_at = :next_retry_at, finished_at = :finished_at, updated_at = :now,
  error_message = :error, error_kind = :error_kind, note = :note
where id = :id

-- name: set_waiting
-- status, version, now, note, id
update jobs set status = ?, prev_status = status, version = ?, updated_at = ?, note = ? where id = ?

-- name: cancel_requests
select job_id, attempt from job_claims
where worker_id = ? and tenant_id = ? and cancel_requested_at is not null and expires_at > (select now from clock)

-- name: reap
-- Leases that have run out, and live ones whose cancel request is old: now, asked before, tenant, limit
select k.job_id, k.version, k.attempt, k.worker_id, k.started, k.claimed_at, k.expires_at, k.cancel_requested_at, k.cancel_note,
  j.kind, j.retry_count, j.max_retries, j.lost_starts
from job_claims k cross join jobs j on j.id = k.job_id
where (k.expires_at <= ? or k.cancel_requested_at <= ?) and k.tenant_id = ? order by k.job_id limit ?

-- name: expire_jobs
-- Jobs nobody holds whose deadline has passed; :id null means any.
update jobs set status = 'FAILED', prev_status = status, version = version + 1, next_retry_at = null, updated_at = :now,
  finished_at = :now, error_kind = 'timeout', error_message = 'the deadline passed before it could finish',
  note = json_object('via', 'system', 'reason', 'deadline', 'error', 'the deadline passed before it could finish',
    'error_kind', 'timeout')
where status in ('PENDING', 'RETRY', 'PARKED', 'WAITING_FOR_APPROVAL') and tenant_id = :tenant and id in (
  select q.job_id from job_queue q cross join jobs j on j.id = q.job_id
  where q.deadline <= :now and j.tenant_id = :tenant and (:id is null or q.job_id = :id) order by q.deadline limit :limit)

-- name: late_jobs
-- For the rare expire_jobs that fails as a whole, to go on one by one.
select q.job_id from job_queue q cross join jobs j on j.id = q.job_id
where q.deadline <= :now and j.tenant_id = :tenant order by q.deadline limit :limit
