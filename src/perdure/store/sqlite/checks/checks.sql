-- Reading everything about some jobs, in one snapshot, to see whether it fits; and repairing what does not.
-- Times are read where they lie in the years 2 to 9998 (as elsewhere is required): Python cannot read all that a column can hold.
-- A row with another one is `odd`, and its times are null.
-- Where the dialect differs: rows are read job by job, which costs no round trip here, and in a file of one's own nothing needs
-- to be locked.

-- name: check_ids
-- The next ids of which anything is kept.
select job_id from (
  select * from (select id as job_id from jobs where id > :after order by id limit :limit)
  union
  select * from (select distinct job_id from job_events where job_id > :after order by job_id limit :limit)
  union
  select * from (select job_id from job_queue where job_id > :after order by job_id limit :limit)
  union
  select * from (select job_id from job_claims where job_id > :after order by job_id limit :limit)
  union
  select * from (select distinct job_id from job_waits where job_id > :after order by job_id limit :limit)
  union
  select * from (select distinct job_id from approvals where job_id > :after order by job_id limit :limit)
  union
  select * from (select job_id from job_state where job_id > :after order by job_id limit :limit)
  union
  select * from (select job_id from job_failures where job_id > :after order by job_id limit :limit)
  union
  select * from (select distinct job_id from job_runs where job_id > :after order by job_id limit :limit)
) order by job_id limit :limit

-- name: check_jobs
select id as job_id, tenant_id, status, version, attempt, retry_count, max_retries, queue, lane, priority, origin_kind, odd,
  case when not odd then run_at end as run_at, case when not odd then next_retry_at end as next_retry_at,
  case when not odd then deadline end as deadline, case when not odd then created_at end as created_at,
  case when not odd then finished_at end as finished_at, case when not odd then pruned_at end as pruned_at,
  error_message is not null as has_error, result is not null as has_result
from (select *, min(run_at, created_at, coalesce(next_retry_at, run_at), coalesce(deadline, run_at),
      coalesce(finished_at, run_at), coalesce(pruned_at, run_at)) < -62104060800000000
    or max(run_at, created_at, coalesce(next_retry_at, run_at), coalesce(deadline, run_at),
      coalesce(finished_at, run_at), coalesce(pruned_at, run_at)) > 253370764800000000 as odd
  from jobs where id = ?)

-- name: check_queue
select job_id, lane, priority, odd, case when not odd then run_at end as run_at, case when not odd then deadline end as deadline
from (select *, min(run_at, coalesce(deadline, run_at)) < -62104060800000000
    or max(run_at, coalesce(deadline, run_at)) > 253370764800000000 as odd
  from job_queue where job_id = ?)

-- name: check_claims
-- `endless`: it runs on for longer than any renewal could have made it.
select job_id, tenant_id, attempt, version, worker_id, expires_at - ttl - 60000000 > (select now from clock) as endless,
  case when expires_at between -62104060800000000 and 253370764800000000 then expires_at end as expires_at
from job_claims where job_id = ?

-- name: check_waits
select job_id, key, kind, subject_id, odd, case when not odd then until end as until,
  case when not odd then answered_at end as answered_at
from (select *, coalesce(until not between -62104060800000000 and 253370764800000000, 0)
    or coalesce(answered_at not between -62104060800000000 and 253370764800000000, 0) as odd
  from job_waits where job_id = ?) order by key

-- name: check_approvals
select job_id, id, tenant_id, key, status,
  case when decided_at between -62104060800000000 and 253370764800000000 then decided_at end as decided_at
from approvals where job_id = ? order by id

-- name: check_state
-- `another_checkpoint`: it is not the text that its last event holds. What a fork inherited is spelled in another way there.
select job_id, checkpoint is not null as has_checkpoint, tokens, cost, coalesce(checkpoint <> (
    select case when e.payload not like '{"state": %' then substr(e.payload, 10, length(e.payload) - 10) end
    from job_events e where e.job_id = s.job_id and e.type = 'checkpoint_saved' order by e.version desc limit 1), 0)
    as another_checkpoint
from job_state s where job_id = ?

-- name: check_failures
select job_id, status from job_failures where job_id = ?

-- name: check_runs
select job_id, attempt, outcome from job_runs where job_id = ? order by attempt

-- name: check_events
-- Of payloads only the beginning, and only where it is needed: they may be a megabyte each.
select version, type, from_status, to_status, attempt, event_id,
  case when created_at between -62104060800000000 and 253370764800000000 then created_at end as created_at,
  case when type in ('node_finished', 'tool_returned', 'wait_started', 'wait_completed', 'approval_requested',
    'approval_decided', 'usage_recorded') or from_status in ('RUNNING', 'WAITING') then substr(payload, 1, 4000) end as head
from job_events where job_id = ? order by version

-- name: check_prune_batch
select count(*) as n from prune_batch

-- name: schema_texts
-- only: sqlite PostgreSQL keeps no text of its schema, and compares names
select type as kind, name, tbl_name as place, sql as body from sqlite_master where sql is not null and name not like 'sqlite_%'

-- name: repair_lane
-- id, lane. Its queue row follows by a trigger.
update jobs set lane = v.column2 from (values (?, ?)) v where id = v.column1

-- name: put_claim
-- A lease that has run out, so that a reaper hands the job on: id, tenant, attempt, version, whether it began
insert into job_claims (job_id, tenant_id, attempt, version, worker_id, expires_at, started)
values (?, ?, ?, ?, 'fsck', (select now from clock), ?)

-- name: repair_claim
-- id, tenant, attempt, version
update job_claims set tenant_id = v.column2, attempt = v.column3, version = v.column4,
  expires_at = min(expires_at, (select now from clock) + ttl)
from (values (?, ?, ?, ?)) v where job_id = v.column1

-- name: put_wait
-- id, key, kind, subject id, until, answered at
insert into job_waits (job_id, key, kind, subject_id, until, answered_at) values (?, ?, ?, ?, ?, ?)
on conflict (job_id, key) do update set kind = excluded.kind, subject_id = excluded.subject_id, until = excluded.until,
  answered_at = excluded.answered_at

-- name: drop_wait
delete from job_waits where job_id = ? and key = ?

-- name: drop_waits
delete from job_waits where job_id = ?

-- name: close_approval
-- As the trigger does when a job ends.
update approvals set status = 'CANCELLED', decided_at = (select now from clock), decided_via = 'system', comment = 'its job ended'
where id = ? and status = 'PENDING'

-- name: put_queue
-- id, lane, priority, run at, deadline
insert into job_queue (job_id, lane, priority, run_at, deadline) values (?, ?, ?, ?, ?)
on conflict (job_id) do update set lane = excluded.lane, priority = excluded.priority, run_at = excluded.run_at,
  deadline = excluded.deadline

-- name: drop_queue
delete from job_queue where job_id = ?

-- name: put_failure
-- id, status, finished at
insert into job_failures (job_id, status, finished_at) values (?, ?, ?)
on conflict (job_id) do update set status = excluded.status, finished_at = excluded.finished_at

-- name: drop_failure
delete from job_failures where job_id = ?

-- name: put_state
-- What the log adds up to: id, version of the last checkpoint (null: none), tokens, cost. The checkpoint is cut out of its event
-- as text, `{"state":...}`, so that it stays the exact text. What a fork inherited has more in it, `{"state": ..., ...}`.
insert into job_state (job_id, checkpoint, tokens, cost, updated_at)
select v.column1, (select case when e.payload like '{"state": %' then e.payload -> '$.state'
    else substr(e.payload, 10, length(e.payload) - 10) end from job_events e
  where e.job_id = v.column1 and e.version = v.column2 and e.payload like '{"state":%'), v.column3, v.column4, (select now from clock)
from (values (?, ?, ?, ?)) v where true
on conflict (job_id) do update set checkpoint = excluded.checkpoint, tokens = excluded.tokens, cost = excluded.cost,
  updated_at = excluded.updated_at

-- name: drop_state
delete from job_state where job_id = ?

-- name: drop_run
-- id, attempt
delete from job_runs where job_id = ? and attempt = ?

-- name: drop_prune_marks
delete from prune_batch
