-- The repairs of fsck, each the statement of a `Repair`.

-- name: repair_lane
-- Its queue row follows by a trigger.
update jobs set lane = :lane where id = :job_id

-- name: put_claim
-- A lease that has expired, so that a reaper hands the job on.
insert into job_claims (job_id, tenant_id, attempt, version, worker_id, expires_at, started, concurrency_key, max_concurrent)
select j.id, :tenant_id, :attempt, :version, 'fsck', (select now from clock), :started, j.concurrency_key, j.max_concurrent
from jobs j where j.id = :job_id

-- name: repair_claim
update job_claims as k set tenant_id = :tenant_id, attempt = :attempt, version = :version,
  expires_at = min(k.expires_at, (select now from clock) + k.ttl), concurrency_key = coalesce(k.concurrency_key, j.concurrency_key),
  max_concurrent = coalesce(k.max_concurrent, j.max_concurrent),
  account_id = case when not exists (select 1 from accounts a
    where a.tenant_id = :tenant_id and a.id = k.account_id and 'cli.' || a.tool <> j.kind) then k.account_id end
from jobs j where k.job_id = :job_id and j.id = k.job_id

-- name: put_wait
insert into job_waits (job_id, key, kind, subject_id, until, answered_at)
values (:job_id, :key, :kind, :subject_id, :until, :answered_at)
on conflict (job_id, kind, key) do update set subject_id = excluded.subject_id, until = excluded.until,
  answered_at = excluded.answered_at

-- name: drop_wait
delete from job_waits where job_id = :job_id and kind = :kind and key = :key

-- name: drop_waits
delete from job_waits where job_id = :job_id

-- name: close_approval
-- As the trigger does when a job ends.
update approvals set status = 'CANCELLED', decided_at = (select now from clock), decided_via = 'system', comment = 'its job ended'
where id = :approval_id and status = 'PENDING'

-- name: bind_signal
-- The wait that has taken it is answered by another repair.
update signals set consumed_by_job_id = job_id, consumed_at = (select now from clock), wait_key = :wait_key where id = :id and consumed_at is null

-- name: drop_files
-- Of a job that does not exist; inputs may be of one that is about to be stored.
delete from job_files where job_id = :job_id and (not is_input or created_at < (select now from clock) - 172800000000)

-- name: drop_tool_output
delete from tool_output where job_id = :job_id

-- name: drop_signals
delete from signals where job_id = :job_id

-- name: put_queue
-- With the key of the job, not held: the next claim finds it, and holds it again where its key is full.
insert into job_queue (job_id, lane, kind, priority, run_at, deadline, status, tenant_id, concurrency_key, max_concurrent, wanted_account)
select j.id, :lane, :kind, :priority, :run_at, :deadline, :status, case when j.concurrency_key is not null then j.tenant_id end,
  j.concurrency_key, j.max_concurrent,
  case when j.kind glob 'cli.*' then coalesce((select w.account from wanted_accounts w where w.job_id = j.id), '') end
from jobs j where j.id = :job_id
on conflict (job_id) do update set lane = excluded.lane, kind = excluded.kind, priority = excluded.priority,
  run_at = excluded.run_at, deadline = excluded.deadline, status = excluded.status, tenant_id = excluded.tenant_id,
  concurrency_key = excluded.concurrency_key, max_concurrent = excluded.max_concurrent, held = 0,
  wanted_account = excluded.wanted_account

-- name: look_again
-- The next look at freed slots finds its key.
insert into freed_slots (tenant_id, key) select q.tenant_id, q.concurrency_key from job_queue q where q.job_id = :job_id and q.held
on conflict do nothing

-- name: drop_queue
delete from job_queue where job_id = :job_id

-- name: put_failure
insert into job_failures (job_id, status, finished_at) values (:job_id, :status, :finished_at)
on conflict (job_id) do update set status = excluded.status, finished_at = excluded.finished_at

-- name: drop_failure
delete from job_failures where job_id = :job_id

-- name: put_state
-- What the log adds up to; version: that of the last checkpoint, null for none. The checkpoint is cut out of its event as text,
-- `{"state":...}`, so that it stays the exact text. What a fork inherited has more in it, `{"state": ..., ...}`.
insert into job_state (job_id, checkpoint, tokens, cost, updated_at)
values (:job_id, (select case when e.payload like '{"state": %' then e.payload -> '$.state'
    else substr(e.payload, 10, length(e.payload) - 10) end from job_events e
  where e.job_id = :job_id and e.version = :version and e.payload like '{"state":%'), :tokens, :cost, (select now from clock))
on conflict (job_id) do update set checkpoint = excluded.checkpoint, tokens = excluded.tokens, cost = excluded.cost,
  updated_at = excluded.updated_at

-- name: drop_state
delete from job_state where job_id = :job_id

-- name: drop_run
delete from job_incomplete_runs where job_id = :job_id and attempt = :attempt

-- name: drop_prune_marks
delete from prune_batch

-- name: repair_times
-- `min` and `max` of a null are null.
update jobs set run_at = min(max(run_at, -62104060800000000), 253370678400000000),
  updated_at = min(max(updated_at, -62104060800000000), 253370678400000000),
  deadline = min(max(deadline, -62104060800000000), 253370678400000000),
  next_retry_at = min(max(next_retry_at, -62104060800000000), 253370678400000000),
  started_at = min(max(started_at, -62104060800000000), 253370678400000000),
  finished_at = min(max(finished_at, -62104060800000000), 253370678400000000),
  pruned_at = min(max(pruned_at, -62104060800000000), 253370678400000000)
where id = :job_id

-- name: take_message
-- For which the job was started.
update agent_messages set consumed_by_job_id = :job_id, consumed_at = (select now from clock) where id = :id
  and consumed_by_job_id is null and refused is null

-- name: put_tags
insert into job_tags (tenant_id, tag, job_id) select j.tenant_id, e.value, j.id from jobs j, json_each(coalesce(j.tags, '[]')) e
where j.id = :job_id on conflict do nothing

-- name: put_agent_job
insert into agent_jobs (tenant_id, agent_id, job_id) select tenant_id, agent_id, id from jobs
where id = :job_id and finished_at is null on conflict do nothing

-- name: drop_agent_jobs
delete from agent_jobs as a where a.tenant_id = :tenant_id
  and not exists (select 1 from jobs j where j.id = a.job_id and j.finished_at is null)

-- name: put_deliveries
-- As in check_agents.
insert into agent_deliveries (tenant_id, agent_id, at)
select distinct m.tenant_id, m.to_agent_id, m.due_at
from agent_messages m join agent_instances i on i.tenant_id = m.tenant_id and i.id = m.to_agent_id
where m.tenant_id = :tenant_id and m.consumed_by_job_id is null and m.refused is null and m.channel not like 'reply:%'
  and i.paused_at is null and not exists (select 1 from agent_deliveries d where d.tenant_id = i.tenant_id and d.agent_id = i.id
    and (d.at >= m.due_at or m.due_at <= (select now from clock)))
on conflict do nothing

-- name: release_agent_signals
-- As in check_agent_signals.
update agent_signals as a set consumed_by_job_id = null, consumed_at = null where a.tenant_id = :tenant_id
  and exists (select 1 from jobs j where j.id = a.consumed_by_job_id)
  and not exists (select 1 from signals s where s.id = a.id)
  and not exists (select 1 from job_events e where e.job_id = a.consumed_by_job_id and e.type = 'signal_received'
    and e.payload like '%' || a.id || '%')

-- name: follow_agent_signals
update agent_signals as a set consumed_by_job_id = s.job_id, consumed_at = coalesce(a.consumed_at, (select now from clock))
from signals s where s.id = a.id and a.tenant_id = :tenant_id and s.job_id is not a.consumed_by_job_id

-- name: put_signal_deliveries
insert into agent_deliveries (tenant_id, agent_id, at) select distinct a.tenant_id, a.agent_id, (select now from clock)
from agent_signals a where a.tenant_id = :tenant_id and a.consumed_by_job_id is null
  and exists (select 1 from agent_jobs o join job_waits w on w.job_id = o.job_id and w.kind = 'signal'
    and w.answered_at is null and w.subject_id = a.key where o.tenant_id = a.tenant_id and o.agent_id = a.agent_id)

-- name: drop_tags
delete from job_tags as t where t.tenant_id = :tenant_id and not exists (select 1 from jobs j, json_each(coalesce(j.tags, '[]')) e
  where j.id = t.job_id and j.tenant_id = t.tenant_id and e.value = t.tag)

-- name: drop_unique_keys
delete from unique_keys as k where k.tenant_id = :tenant_id and k.until is null and not exists (select 1 from jobs j
  where j.id = k.job_id and j.finished_at is null and j.kind = k.kind and j.unique_key = k.key)

-- name: lock_tenant_memory
-- There is one writer at a time: nothing is to be locked.
select no from memory_scopes where tenant_id = :tenant_id

-- name: drop_wrong_terms
-- Of entries that are not found, and of those whose terms are not as many as they say: these are made again.
delete from memory_terms where scope_no in (select no from memory_scopes where tenant_id = :tenant_id) and (scope_no, entry_no) in (
  select t.scope_no, t.entry_no from memory_scopes s join memory_terms t on t.scope_no = s.no
  left join memory_entries e on e.no = t.entry_no and e.scope_no = t.scope_no and e.archived_at is null
  where s.tenant_id = :tenant_id group by t.scope_no, t.entry_no
  having e.no is null or sum(t.count) <> e.tokens or min(t.length) <> e.tokens or max(t.length) <> e.tokens)

-- name: mark_unindexed
update memory_entries set tokeniser = '', tokens = 0
where tenant_id = :tenant_id and archived_at is null and tokens > 0 and no not in (
  select t.entry_no from memory_scopes s join memory_terms t on t.scope_no = s.no where s.tenant_id = :tenant_id)

-- name: mark_unlabelled
-- Entries that lack what searches are narrowed by: all they are found by is made again. Their terms are whole.
update memory_entries as e set tokeniser = ''
where e.tenant_id = :tenant_id and e.archived_at is null and (not exists (select 1 from memory_terms t
    where t.scope_no = e.scope_no and t.term = '#kind ' || e.kind and t.entry_no = e.no)
  or exists (select 1 from json_each(e.tags) g where not exists (select 1 from memory_terms t
    where t.scope_no = e.scope_no and t.term = '#tag ' || g.value and t.entry_no = e.no)))

-- name: put_memory_sums
with n as materialized (select s.no, count(e.no) as entries, coalesce(sum(e.tokens), 0) as tokens
  from memory_scopes s left join memory_entries e on e.scope_no = s.no and e.archived_at is null
  where s.tenant_id = :tenant_id group by s.no)
update memory_scopes set version = version + 1, entries = n.entries, tokens = n.tokens
from n where n.no = memory_scopes.no and (memory_scopes.entries <> n.entries or memory_scopes.tokens <> n.tokens)
