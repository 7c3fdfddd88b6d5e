-- Repairs. Each runs after its job's claim and row were locked, in a transaction that fails if anything of it changed meanwhile.

-- name: repair_lane
-- Its queue row follows by a trigger.
update perdure.jobs set lane = :lane where id = :job_id

-- name: put_claim
-- A lease that has run out, so that a reaper hands the job on.
insert into perdure.job_claims (job_id, tenant_id, attempt, version, worker_id, expires_at, started, concurrency_key, max_concurrent)
select j.id, :tenant_id::text, :attempt::int, :version::int, 'fsck', perdure.db_now(), :started::bool, j.concurrency_key, j.max_concurrent
from perdure.jobs j where j.id = :job_id

-- name: repair_claim
update perdure.job_claims k set tenant_id = :tenant_id, attempt = :attempt, version = :version,
  expires_at = least(expires_at, perdure.db_now() + ttl), concurrency_key = coalesce(k.concurrency_key, j.concurrency_key),
  max_concurrent = coalesce(k.max_concurrent, j.max_concurrent),
  account_id = case when not exists (select from perdure.accounts a
    where a.tenant_id = :tenant_id and a.id = k.account_id and 'cli.' || a.tool <> j.kind) then k.account_id end
from perdure.jobs j where k.job_id = :job_id and j.id = k.job_id

-- name: put_wait
insert into perdure.job_waits (job_id, key, kind, subject_id, until, answered_at)
values (:job_id, :key, :kind, :subject_id, :until, :answered_at)
on conflict (job_id, kind, key) do update set subject_id = excluded.subject_id, until = excluded.until,
  answered_at = excluded.answered_at

-- name: drop_wait
delete from perdure.job_waits where job_id = :job_id and kind = :kind and key = :key

-- name: drop_waits
delete from perdure.job_waits where job_id = :job_id

-- name: close_approval
-- As the trigger does when a job ends.
update perdure.approvals set status = 'CANCELLED', decided_at = perdure.db_now(), decided_via = 'system', comment = 'its job ended'
where id = :approval_id and status = 'PENDING'

-- name: bind_signal
-- The wait that has taken it is answered by another repair.
update perdure.signals set consumed_by_job_id = job_id, consumed_at = perdure.db_now(), wait_key = :wait_key where id = :id and consumed_at is null

-- name: drop_files
-- Of a job that does not exist; inputs may be of one that is about to be stored.
delete from perdure.job_files where job_id = :job_id and (not is_input or created_at < perdure.db_now() - interval '2 days')

-- name: drop_tool_output
delete from perdure.tool_output where job_id = :job_id

-- name: drop_signals
delete from perdure.signals where job_id = :job_id

-- name: put_queue
-- With the key of the job, not held: the next claim finds it, and holds it again where its key is full.
insert into perdure.job_queue (job_id, lane, kind, priority, run_at, deadline, status, tenant_id, concurrency_key, max_concurrent,
  wanted_account)
select j.id, :lane::text, :kind::text, :priority::smallint, :run_at::timestamptz, :deadline::timestamptz,
  :status::text::perdure.job_status, case when j.concurrency_key is not null then j.tenant_id end, j.concurrency_key, j.max_concurrent,
  case when j.kind like 'cli.%' then perdure.wanted_account(j.id) end
from perdure.jobs j where j.id = :job_id
on conflict (job_id) do update set lane = excluded.lane, kind = excluded.kind, priority = excluded.priority,
  run_at = excluded.run_at, deadline = excluded.deadline, status = excluded.status, tenant_id = excluded.tenant_id,
  concurrency_key = excluded.concurrency_key, max_concurrent = excluded.max_concurrent, held = false,
  wanted_account = excluded.wanted_account

-- name: look_again
-- The next look at freed slots finds its key.
insert into perdure.freed_slots (tenant_id, key) select q.tenant_id, q.concurrency_key from perdure.job_queue q
where q.job_id = :job_id and q.held

-- name: drop_queue
delete from perdure.job_queue where job_id = :job_id

-- name: put_failure
insert into perdure.job_failures (job_id, status, finished_at) values (:job_id, :status::text::perdure.job_status, :finished_at)
on conflict (job_id) do update set status = excluded.status, finished_at = excluded.finished_at

-- name: drop_failure
delete from perdure.job_failures where job_id = :job_id

-- name: put_state
-- What the log adds up to. version: of the last checkpoint, null without one. The checkpoint is cut out of its event as text,
-- `{"state":...}`: JSON with \u0000 in it is legal and cannot be taken apart by PostgreSQL. What a fork inherited has more in it,
-- `{"state": ..., ...}`.
insert into perdure.job_state (job_id, checkpoint, tokens, cost)
select :job_id, (select case when e.payload::text like '{"state": %' then e.payload -> 'state'
    else substring(e.payload::text from 10 for length(e.payload::text) - 10)::json end from perdure.job_events e
  where e.job_id = :job_id and e.version = :version::int and e.payload::text like '{"state":%'), :tokens, :cost
on conflict (job_id) do update set checkpoint = excluded.checkpoint, tokens = excluded.tokens, cost = excluded.cost,
  updated_at = perdure.db_now()

-- name: drop_state
delete from perdure.job_state where job_id = :job_id

-- name: drop_run
delete from perdure.job_incomplete_runs where job_id = :job_id and attempt = :attempt

-- name: drop_prune_marks
delete from perdure.prune_batch

-- name: repair_times
-- `least` and `greatest` ignore nulls.
update perdure.jobs set run_at = least(greatest(run_at, '0002-01-01 UTC'), '9998-12-31 UTC'),
  updated_at = least(greatest(updated_at, '0002-01-01 UTC'), '9998-12-31 UTC'),
  deadline = case when deadline is not null then least(greatest(deadline, '0002-01-01 UTC'), '9998-12-31 UTC') end,
  next_retry_at = case when next_retry_at is not null then least(greatest(next_retry_at, '0002-01-01 UTC'), '9998-12-31 UTC') end,
  started_at = case when started_at is not null then least(greatest(started_at, '0002-01-01 UTC'), '9998-12-31 UTC') end,
  finished_at = case when finished_at is not null then least(greatest(finished_at, '0002-01-01 UTC'), '9998-12-31 UTC') end,
  pruned_at = case when pruned_at is not null then least(greatest(pruned_at, '0002-01-01 UTC'), '9998-12-31 UTC') end
where id = :job_id

-- name: take_message
-- For which the job was started.
update perdure.agent_messages set consumed_by_job_id = :job_id, consumed_at = perdure.db_now() where id = :id
  and consumed_by_job_id is null and refused is null

-- name: put_tags
insert into perdure.job_tags (tenant_id, tag, job_id) select j.tenant_id, e.tag, j.id from perdure.jobs j, json_array_elements_text(coalesce(j.tags, '[]')) e(tag)
where j.id = :job_id on conflict do nothing

-- name: put_agent_job
insert into perdure.agent_jobs (tenant_id, agent_id, job_id) select tenant_id, agent_id, id from perdure.jobs
where id = :job_id and finished_at is null on conflict do nothing

-- name: drop_agent_jobs
delete from perdure.agent_jobs a where a.tenant_id = :tenant_id
  and not exists (select 1 from perdure.jobs j where j.id = a.job_id and j.finished_at is null)

-- name: put_deliveries
-- As in check_agents.
insert into perdure.agent_deliveries (tenant_id, agent_id, at)
select distinct m.tenant_id, m.to_agent_id, m.due_at
from perdure.agent_messages m join perdure.agent_instances i on i.tenant_id = m.tenant_id and i.id = m.to_agent_id
where m.tenant_id = :tenant_id and m.consumed_by_job_id is null and m.refused is null and m.channel not like 'reply:%'
  and i.paused_at is null and not exists (select 1 from perdure.agent_deliveries d where d.tenant_id = i.tenant_id and d.agent_id = i.id
    and (d.at >= m.due_at or m.due_at <= perdure.db_now()))
on conflict do nothing

-- name: release_agent_signals
-- As in check_agent_signals.
update perdure.agent_signals as a set consumed_by_job_id = null, consumed_at = null where a.tenant_id = :tenant_id
  and exists (select 1 from perdure.jobs j where j.id = a.consumed_by_job_id)
  and not exists (select 1 from perdure.signals s where s.id = a.id)
  and not exists (select 1 from perdure.job_events e where e.job_id = a.consumed_by_job_id and e.type = 'signal_received'
    and e.payload::text like '%' || a.id::text || '%')

-- name: follow_agent_signals
update perdure.agent_signals as a set consumed_by_job_id = s.job_id, consumed_at = coalesce(a.consumed_at, perdure.db_now())
from perdure.signals s where s.id = a.id and a.tenant_id = :tenant_id and s.job_id is distinct from a.consumed_by_job_id

-- name: put_signal_deliveries
insert into perdure.agent_deliveries (tenant_id, agent_id, at) select distinct a.tenant_id, a.agent_id, perdure.db_now()
from perdure.agent_signals a where a.tenant_id = :tenant_id and a.consumed_by_job_id is null
  and exists (select 1 from perdure.agent_jobs o join perdure.job_waits w on w.job_id = o.job_id and w.kind = 'signal'
    and w.answered_at is null and w.subject_id = a.key where o.tenant_id = a.tenant_id and o.agent_id = a.agent_id)

-- name: drop_tags
delete from perdure.job_tags t where t.tenant_id = :tenant_id and not exists (select 1 from perdure.jobs j, json_array_elements_text(coalesce(j.tags, '[]')) e(tag)
  where j.id = t.job_id and j.tenant_id = t.tenant_id and e.tag = t.tag)

-- name: drop_unique_keys
delete from perdure.unique_keys k where k.tenant_id = :tenant_id and k.until is null and not exists (select 1 from perdure.jobs j
  where j.id = k.job_id and j.finished_at is null and j.kind = k.kind and j.unique_key = k.key)

-- name: lock_tenant_memory
-- In the order in which writes lock them: the entries do not change until the sums are right.
select no from perdure.memory_scopes where tenant_id = :tenant_id order by scope for update

-- name: drop_wrong_terms
-- Of entries that are not found, and of those whose terms are not as many as they say: these are made again.
delete from perdure.memory_terms t using (
  select t.scope_no, t.entry_no from perdure.memory_scopes s join perdure.memory_terms t on t.scope_no = s.no
  left join perdure.memory_entries e on e.no = t.entry_no and e.scope_no = t.scope_no and e.archived_at is null
  where s.tenant_id = :tenant_id group by t.scope_no, t.entry_no, e.no, e.tokens
  having e.no is null or sum(t.count) <> e.tokens or min(t.length) <> e.tokens or max(t.length) <> e.tokens) wrong
where t.scope_no = wrong.scope_no and t.entry_no = wrong.entry_no

-- name: mark_unindexed
update perdure.memory_entries e set tokeniser = '', tokens = 0
where e.tenant_id = :tenant_id and e.archived_at is null and e.tokens > 0 and e.no not in (
  select t.entry_no from perdure.memory_scopes s join perdure.memory_terms t on t.scope_no = s.no where s.tenant_id = :tenant_id)

-- name: mark_unlabelled
-- Entries that lack what searches are narrowed by: all they are found by is made again. Their terms are whole.
update perdure.memory_entries e set tokeniser = ''
where e.tenant_id = :tenant_id and e.archived_at is null and (not exists (select from perdure.memory_terms t
    where t.scope_no = e.scope_no and t.term = '#kind ' || e.kind and t.entry_no = e.no)
  or exists (select from unnest(e.tags) g(value) where not exists (select from perdure.memory_terms t
    where t.scope_no = e.scope_no and t.term = '#tag ' || g.value and t.entry_no = e.no)))

-- name: put_memory_sums
with n as materialized (select s.no, count(e.no)::int as entries, coalesce(sum(e.tokens), 0)::bigint as tokens
  from perdure.memory_scopes s left join perdure.memory_entries e on e.scope_no = s.no and e.archived_at is null
  where s.tenant_id = :tenant_id group by s.no)
update perdure.memory_scopes s set version = s.version + 1, entries = n.entries, tokens = n.tokens
from n where n.no = s.no and (s.entries <> n.entries or s.tokens <> n.tokens)
