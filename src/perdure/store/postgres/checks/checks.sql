-- Reading everything about some jobs, in one snapshot, to see whether it fits; and repairing what does not.
-- Times are read where they lie in the years 2 to 9998 (as elsewhere is required): the driver cannot read all that the server can
-- hold. A row with another one is `odd`, and its times are null.
-- A repair runs after its job's claim and row were locked, in a transaction that fails if anything of it changed meanwhile.

-- name: check_ids
-- The next ids of which anything is kept: $1 after (null: from the start), $2 limit. Runs after by_index: each table is read in
-- the order of its key, as far as is needed. Of job_events, whose jobs have many, only the keys.
select distinct job_id from (
  (select id as job_id from perdure.jobs where $1::uuid is null or id > $1 order by id limit $2)
  union all
  (select distinct job_id from perdure.job_events where $1::uuid is null or job_id > $1 order by job_id limit $2)
  union all
  (select job_id from perdure.job_queue where $1::uuid is null or job_id > $1 order by job_id limit $2)
  union all
  (select job_id from perdure.job_claims where $1::uuid is null or job_id > $1 order by job_id limit $2)
  union all
  (select distinct job_id from perdure.job_waits where $1::uuid is null or job_id > $1 order by job_id limit $2)
  union all
  (select distinct job_id from perdure.approvals where $1::uuid is null or job_id > $1 order by job_id limit $2)
  union all
  (select job_id from perdure.job_state where $1::uuid is null or job_id > $1 order by job_id limit $2)
  union all
  (select job_id from perdure.job_failures where $1::uuid is null or job_id > $1 order by job_id limit $2)
  union all
  (select distinct job_id from perdure.job_runs where $1::uuid is null or job_id > $1 order by job_id limit $2)
) kept order by job_id limit $2

-- name: check_jobs
select id as job_id, tenant_id, status::text, version, attempt, retry_count, max_retries, queue, lane, priority, origin_kind, odd,
  case when not odd then run_at end as run_at, case when not odd then next_retry_at end as next_retry_at,
  case when not odd then deadline end as deadline, case when not odd then created_at end as created_at,
  case when not odd then finished_at end as finished_at, case when not odd then pruned_at end as pruned_at,
  error_message is not null as has_error, result is not null as has_result
from (select *, least(run_at, next_retry_at, deadline, created_at, finished_at, pruned_at) < '0002-01-01 UTC'
    or greatest(run_at, next_retry_at, deadline, created_at, finished_at, pruned_at) > '9999-01-01 UTC' as odd
  from perdure.jobs where id = any ($1::uuid[])) j

-- name: check_queue
select job_id, lane, priority, odd, case when not odd then run_at end as run_at, case when not odd then deadline end as deadline
from (select *, least(run_at, deadline) < '0002-01-01 UTC' or greatest(run_at, deadline) > '9999-01-01 UTC' as odd
  from perdure.job_queue where job_id = any ($1::uuid[])) q

-- name: check_claims
-- `endless`: it runs on for longer than any renewal could have made it.
select job_id, tenant_id, attempt, version, worker_id, expires_at > perdure.db_now() + ttl + interval '1 minute' as endless,
  case when expires_at between '0002-01-01 UTC' and '9999-01-01 UTC' then expires_at end as expires_at
from perdure.job_claims where job_id = any ($1::uuid[])

-- name: check_waits
select job_id, key, kind, subject_id, odd, case when not odd then until end as until,
  case when not odd then answered_at end as answered_at
from (select *, coalesce(least(until, answered_at) < '0002-01-01 UTC' or greatest(until, answered_at) > '9999-01-01 UTC', false)
    as odd
  from perdure.job_waits where job_id = any ($1::uuid[])) w order by job_id, key

-- name: check_approvals
select job_id, id, tenant_id, key, status,
  case when decided_at between '0002-01-01 UTC' and '9999-01-01 UTC' then decided_at end as decided_at
from perdure.approvals where job_id = any ($1::uuid[]) order by job_id, id

-- name: check_state
-- `another_checkpoint`: it is not the text that its last event holds. What a fork inherited is spelled in another way there.
select job_id, checkpoint is not null as has_checkpoint, tokens, cost, coalesce(checkpoint::text <> (
    select case when e.payload::text not like '{"state": %'
      then substring(e.payload::text from 10 for length(e.payload::text) - 10) end
    from perdure.job_events e where e.job_id = s.job_id and e.type = 'checkpoint_saved' order by e.version desc limit 1), false)
    as another_checkpoint
from perdure.job_state s where job_id = any ($1::uuid[])

-- name: check_failures
select job_id, status::text from perdure.job_failures where job_id = any ($1::uuid[])

-- name: check_runs
select job_id, attempt, outcome::text from perdure.job_runs where job_id = any ($1::uuid[]) order by job_id, attempt

-- name: check_events
-- In the order of the key, as they stream: $1 ids (sorted, all there are between the first and the last), $2 first, $3 last.
-- Of payloads only the beginning, and only where it is needed: they may be a megabyte each.
select job_id, version, type, from_status::text, to_status::text, attempt, event_id,
  case when created_at between '0002-01-01 UTC' and '9999-01-01 UTC' then created_at end as created_at,
  case when type in ('node_finished', 'tool_returned', 'wait_started', 'wait_completed', 'approval_requested',
    'approval_decided', 'usage_recorded') or from_status in ('RUNNING', 'WAITING') then left(payload::text, 4000) end as head
from perdure.job_events where job_id >= $2::uuid and job_id <= $3::uuid and job_id = any ($1::uuid[])
order by job_id, version

-- name: check_prune_batch
select count(*) as n from perdure.prune_batch

-- name: schema_objects
-- only: postgres SQLite keeps the text of its schema, and compares that
select 'table' as kind, c.relname::text as name, null::text as place, true as works, null::text as body
from pg_class c where c.relnamespace = to_regnamespace('perdure') and c.relkind in ('r', 'p')
union all
select 'view', c.relname, null, true, null
from pg_class c where c.relnamespace = to_regnamespace('perdure') and c.relkind = 'v'
union all
select 'index', i.relname, c.relname, x.indisvalid, null
from pg_index x join pg_class i on i.oid = x.indexrelid join pg_class c on c.oid = x.indrelid
where i.relnamespace = to_regnamespace('perdure')
union all
select 'constraint', k.conname, c.relname, k.convalidated, null
from pg_constraint k join pg_class c on c.oid = k.conrelid where k.connamespace = to_regnamespace('perdure')
union all
select 'trigger', t.tgname, c.relname, t.tgenabled in ('O', 'A'), p.proname
from pg_trigger t join pg_class c on c.oid = t.tgrelid join pg_proc p on p.oid = t.tgfoid
where not t.tgisinternal and c.relnamespace = to_regnamespace('perdure')
union all
select 'function', p.proname, null, true, p.prosrc from pg_proc p where p.pronamespace = to_regnamespace('perdure')
union all
select 'type', t.typname, null, true, null from pg_type t where t.typnamespace = to_regnamespace('perdure') and t.typtype = 'e'

-- name: triggers_fire
-- only: postgres a session, a role or a whole database may be told not to
select current_setting('session_replication_role') <> 'replica' as fire

-- name: repair_lane
-- $1 id, $2 lane. Its queue row follows by a trigger.
update perdure.jobs set lane = $2 where id = $1

-- name: put_claim
-- A lease that has run out, so that a reaper hands the job on: $1 id, $2 tenant, $3 attempt, $4 version, $5 whether it began
insert into perdure.job_claims (job_id, tenant_id, attempt, version, worker_id, expires_at, started)
values ($1, $2, $3, $4, 'fsck', perdure.db_now(), $5)

-- name: repair_claim
-- $1 id, $2 tenant, $3 attempt, $4 version
update perdure.job_claims set tenant_id = $2, attempt = $3, version = $4, expires_at = least(expires_at, perdure.db_now() + ttl)
where job_id = $1

-- name: put_wait
-- $1 id, $2 key, $3 kind, $4 subject id, $5 until, $6 answered at
insert into perdure.job_waits (job_id, key, kind, subject_id, until, answered_at) values ($1, $2, $3, $4, $5, $6)
on conflict (job_id, key) do update set kind = excluded.kind, subject_id = excluded.subject_id, until = excluded.until,
  answered_at = excluded.answered_at

-- name: drop_wait
delete from perdure.job_waits where job_id = $1 and key = $2

-- name: drop_waits
delete from perdure.job_waits where job_id = $1

-- name: close_approval
-- As the trigger does when a job ends: $1 id
update perdure.approvals set status = 'CANCELLED', decided_at = perdure.db_now(), decided_door = 'system', comment = 'its job ended'
where id = $1 and status = 'PENDING'

-- name: put_queue
-- $1 id, $2 lane, $3 priority, $4 run at, $5 deadline
insert into perdure.job_queue (job_id, lane, priority, run_at, deadline) values ($1, $2, $3, $4, $5)
on conflict (job_id) do update set lane = excluded.lane, priority = excluded.priority, run_at = excluded.run_at,
  deadline = excluded.deadline

-- name: drop_queue
delete from perdure.job_queue where job_id = $1

-- name: put_failure
-- $1 id, $2 status, $3 finished at
insert into perdure.job_failures (job_id, status, finished_at) values ($1, $2::text::perdure.job_status, $3)
on conflict (job_id) do update set status = excluded.status, finished_at = excluded.finished_at

-- name: drop_failure
delete from perdure.job_failures where job_id = $1

-- name: put_state
-- What the log adds up to: $1 id, $2 version of the last checkpoint (null: none), $3 tokens, $4 cost. The checkpoint is cut out of
-- its event as text, `{"state":...}`: JSON with \u0000 in it is legal and cannot be taken apart by PostgreSQL. What a fork
-- inherited has more in it, `{"state": ..., ...}`.
insert into perdure.job_state (job_id, checkpoint, tokens, cost)
select $1, (select case when e.payload::text like '{"state": %' then e.payload -> 'state'
    else substring(e.payload::text from 10 for length(e.payload::text) - 10)::json end from perdure.job_events e
  where e.job_id = $1 and e.version = $2::int and e.payload::text like '{"state":%'), $3, $4
on conflict (job_id) do update set checkpoint = excluded.checkpoint, tokens = excluded.tokens, cost = excluded.cost,
  updated_at = perdure.db_now()

-- name: drop_state
delete from perdure.job_state where job_id = $1

-- name: drop_run
-- $1 id, $2 attempt
delete from perdure.job_runs where job_id = $1 and attempt = $2

-- name: drop_prune_marks
delete from perdure.prune_batch
