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
  select * from (select distinct job_id from signals where job_id > :after order by job_id limit :limit)
  union
  select * from (select job_id from job_state where job_id > :after order by job_id limit :limit)
  union
  select * from (select job_id from job_failures where job_id > :after order by job_id limit :limit)
  union
  select * from (select distinct job_id from job_incomplete_runs where job_id > :after order by job_id limit :limit)
  union
  select * from (select distinct job_id from job_files where job_id > :after order by job_id limit :limit)
  union
  select * from (select distinct job_id from tool_runs where job_id > :after order by job_id limit :limit)
  union
  select * from (select distinct job_id from tool_output where job_id > :after order by job_id limit :limit)
  union
  select * from (select distinct consumed_by_job_id from agent_messages where consumed_by_job_id > :after
    order by consumed_by_job_id limit :limit)
) order by job_id limit :limit

-- name: check_jobs
select id as job_id, tenant_id, status, version, attempt, retry_count, max_retries, kind, queue, lane, priority,
  origin_kind, odd, concurrency_key,
  case when not odd then run_at end as run_at, case when not odd then next_retry_at end as next_retry_at,
  case when not odd then deadline end as deadline, case when not odd then created_at end as created_at,
  case when not odd then finished_at end as finished_at, case when not odd then pruned_at end as pruned_at,
  error_message is not null as has_error, result is not null as has_result,
  pruned_at is null and coalesce(payload_hash <> sha256(cast(payload as blob)), false) as another_payload,
  tags is not null and exists (select 1 from json_each(j.tags) e where not exists (select 1 from job_tags t
    where t.tenant_id = j.tenant_id and t.tag = e.value and t.job_id = j.id)) as untagged,
  agent_id is not null and finished_at is null and not exists (select 1 from agent_jobs a
    where a.tenant_id = j.tenant_id and a.agent_id = j.agent_id and a.job_id = j.id) as unlisted
from (select *, min(run_at, created_at, coalesce(next_retry_at, run_at), coalesce(deadline, run_at),
      coalesce(finished_at, run_at), coalesce(pruned_at, run_at)) < -62104060800000000
    or max(run_at, created_at, coalesce(next_retry_at, run_at), coalesce(deadline, run_at),
      coalesce(finished_at, run_at), coalesce(pruned_at, run_at)) > 253370764800000000 as odd
  from jobs where id = :job_id) j

-- name: check_queue
-- `another_account`: it is a task and stands among those for another account, or the reverse; which account a session has may have
-- changed. `forgotten`: it is the first of those that wait for a slot of its key, one is free, and nothing will look at the key.
select job_id, lane, kind, priority, status, odd, case when not odd then run_at end as run_at,
  case when not odd then deadline end as deadline, tenant_id, concurrency_key, held,
  q.wanted_account is not (select case when j.kind not glob 'cli.*' then null
    when j.payload like '%"session"%' then coalesce(q.wanted_account, '')
    else coalesce((select w.account from wanted_accounts w where w.job_id = j.id), '') end
    from jobs j where j.id = q.job_id) as another_account,
  q.held and not exists (select 1 from freed_slots f where f.tenant_id = q.tenant_id and f.key = q.concurrency_key)
    and not exists (select 1 from rates r where r.tenant_id = q.tenant_id and r.key = q.concurrency_key and r.wake_at is not null)
    and not exists (select 1 from job_queue e where e.tenant_id = q.tenant_id and e.concurrency_key = q.concurrency_key and e.held = 1
      and e.lane = q.lane and e.kind = q.kind and (-e.priority, e.run_at, e.job_id) < (-q.priority, q.run_at, q.job_id))
    and coalesce((select count(*) from job_claims k where k.tenant_id = q.tenant_id and k.concurrency_key = q.concurrency_key)
      + (select count(*) from job_queue e where e.tenant_id = q.tenant_id and e.concurrency_key = q.concurrency_key
        and e.held = 0 and e.lane = q.lane and e.kind = q.kind and e.run_at <= (select now from clock))
      < coalesce((select l.max from limits l where l.tenant_id = q.tenant_id and l.key = q.concurrency_key),
        q.max_concurrent), 1) as forgotten
from (select *, min(run_at, coalesce(deadline, run_at)) < -62104060800000000
    or max(run_at, coalesce(deadline, run_at)) > 253370764800000000 as odd
  from job_queue where job_id = :job_id) q

-- name: check_claims
-- `endless`: it runs on for longer than any renewal could have made it.
select job_id, tenant_id, attempt, version, worker_id, expires_at - ttl - 60000000 > (select now from clock) as endless,
  case when expires_at between -62104060800000000 and 253370764800000000 then expires_at end as expires_at, concurrency_key,
  (select a.id from accounts a join jobs j on j.id = k.job_id
    where a.tenant_id = k.tenant_id and a.id = k.account_id and 'cli.' || a.tool <> j.kind) as foreign_account
from job_claims k where job_id = :job_id

-- name: check_waits
select job_id, key, kind, subject_id, odd, case when not odd then until end as until,
  case when not odd then answered_at end as answered_at
from (select *, coalesce(until not between -62104060800000000 and 253370764800000000, 0)
    or coalesce(answered_at not between -62104060800000000 and 253370764800000000, 0) as odd
  from job_waits where job_id = :job_id) order by key

-- name: check_awaited
-- What the waits for children still wait for; a job that is gone has ended.
select a.job_id, a.key, a.child_id, not exists (select 1 from jobs c where c.id = a.child_id and c.finished_at is null) as ended
from awaited_jobs a where a.job_id = :job_id order by a.key, a.child_id

-- name: check_approvals
select job_id, id, tenant_id, key, status,
  case when decided_at between -62104060800000000 and 253370764800000000 then decided_at end as decided_at,
  payload_digest <> sha256(cast(payload as blob)) as another_payload
from approvals where job_id = :job_id order by id

-- name: check_signals
select job_id, id, tenant_id, key, wait_key, consumed_at is null as pending,
  case when consumed_at between -62104060800000000 and 253370764800000000 then consumed_at end as consumed_at
from signals where job_id = :job_id order by created_at, id

-- name: check_messages
-- What the job has got.
select consumed_by_job_id as job_id, id, tenant_id, consumed_key,
  case when consumed_at between -62104060800000000 and 253370764800000000 then consumed_at end as consumed_at
from agent_messages where consumed_by_job_id = :job_id order by due_at, id

-- name: check_begun_for
-- The message for which an agent started the job, as the job's first event names it, and what became of that message.
select e.job_id, substr(e.payload, instr(e.payload, '"via": "message", "message": "') + 30, 36) as id, m.id is null as gone,
  m.consumed_by_job_id, m.refused
from jobs j join job_events e on e.job_id = j.id and e.version = 1
  left join agent_messages m on m.id = substr(e.payload, instr(e.payload, '"via": "message", "message": "') + 30, 36)
where j.id = :job_id and j.agent_id is not null and e.payload like '%"via": "message", "message": "%'

-- name: check_state
-- `another_checkpoint`: it is not the text that its last event holds. What a fork inherited is written in another way there.
select job_id, checkpoint is not null as has_checkpoint, tokens, cost, coalesce(checkpoint <> (
    select case when e.payload not like '{"state": %' then substr(e.payload, 10, length(e.payload) - 10) end
    from job_events e where e.job_id = s.job_id and e.type = 'checkpoint_saved' order by e.version desc limit 1), 0)
    as another_checkpoint
from job_state s where job_id = :job_id

-- name: check_failures
select job_id, status from job_failures where job_id = :job_id

-- name: check_runs
select job_id, attempt, outcome from job_runs where job_id = :job_id order by attempt

-- name: check_files
-- `stays`: its job should be there; the inputs of a job are stored before it.
select f.job_id, f.tenant_id, f.path, f.is_input, f.attempt, c.hash is null as lost, not f.is_input or f.created_at < (select now from clock) - 172800000000 as stays,
  c.size_bytes <> f.size_bytes or length(c.content) <> f.size_bytes as another_size
from job_files f left join file_contents c on c.tenant_id = f.tenant_id and c.hash = f.hash
where f.job_id = :job_id order by f.is_input desc, f.attempt, f.path

-- name: check_tool_runs
select job_id, tenant_id, attempt from tool_runs where job_id = :job_id order by attempt

-- name: check_tool_output
select distinct job_id, attempt from tool_output where job_id = :job_id order by attempt

-- name: check_blobs
-- The files whose contents are blobs, of the jobs of one page; whole: all of its files. after, up_to: ids, null for none.
select f.job_id, f.path, f.is_input, f.attempt, f.hash, c.content is null as blob
from job_files f join file_contents c on c.tenant_id = f.tenant_id and c.hash = f.hash
where f.tenant_id = :tenant_id and (:whole or c.content is null)
  and (:after is null or f.job_id > :after) and (:up_to is null or f.job_id <= :up_to)
  and exists (select 1 from jobs j where j.id = f.job_id)
order by f.job_id, f.is_input desc, f.attempt, f.path

-- name: check_events
-- Of payloads only the beginning, and only where it is needed: they may be a megabyte each.
select version, type, from_status, to_status, attempt, event_id,
  case when created_at between -62104060800000000 and 253370764800000000 then created_at end as created_at,
  case when type in ('node_finished', 'tool_returned', 'wait_started', 'wait_completed', 'approval_requested',
    'approval_decided', 'signal_received', 'agent_message', 'usage_recorded') or from_status is not null then substr(payload, 1, 4000) end as head
from job_events where job_id = :job_id order by version

-- name: check_prune_batch
select count(*) as n from prune_batch

-- name: check_memory
-- unindexed: entries that searches would find if they had terms and a vector. sums: scopes that say what is not so. One statement, so
-- that all of it is of one moment.
select (select count(*) from memory_entries e where e.tenant_id = :tenant_id and e.archived_at is null
    and (e.tokeniser = '' or not exists (select 1 from memory_vectors v where v.entry_no = e.no)
    or not exists (select 1 from memory_terms t
      where t.scope_no = e.scope_no and t.term = '#kind ' || e.kind and t.entry_no = e.no)
    or exists (select 1 from json_each(e.tags) g where not exists (select 1 from memory_terms t
      where t.scope_no = e.scope_no and t.term = '#tag ' || g.value and t.entry_no = e.no)))) as unindexed,
  (select count(*) from memory_scopes s
    left join (select scope_no, sum(count) as tokens from memory_terms group by scope_no) t on t.scope_no = s.no
    left join (select scope_no, count(*) as entries from memory_entries where archived_at is null group by scope_no) n
      on n.scope_no = s.no
    where s.tenant_id = :tenant_id and (s.tokens <> coalesce(t.tokens, 0) or s.entries <> coalesce(n.entries, 0))) as sums

-- name: check_agent_signals
-- Signals to agents, counted. lost: a job that exists counts as the one that got it, and neither it nor its log has it. differs: the job that has it is
-- another one, or it is pending. orphan: it is pending, and there is no such agent. unbound: a job of the agent waits for it, and
-- nothing would look.
select (select count(*) from agent_signals a join jobs j on j.id = a.consumed_by_job_id where a.tenant_id = :tenant_id
    and not exists (select 1 from signals s where s.id = a.id)
    and not exists (select 1 from job_events e where e.job_id = a.consumed_by_job_id and e.type = 'signal_received'
      and e.payload like '%' || a.id || '%')) as lost,
  (select count(*) from agent_signals a join signals s on s.id = a.id where a.tenant_id = :tenant_id
    and s.job_id is not a.consumed_by_job_id) as differs,
  (select count(*) from agent_signals a where a.tenant_id = :tenant_id and a.consumed_by_job_id is null
    and (a.expires_at is null or a.expires_at > (select now from clock))
    and not exists (select 1 from agent_instances i where i.tenant_id = a.tenant_id and i.id = a.agent_id)) as orphan,
  (select count(*) from agent_signals a
    join agent_instances i on i.tenant_id = a.tenant_id and i.id = a.agent_id and i.paused_at is null
    where a.tenant_id = :tenant_id and a.consumed_by_job_id is null and (a.expires_at is null or a.expires_at > (select now from clock))
      and not exists (select 1 from agent_deliveries d where d.tenant_id = a.tenant_id and d.agent_id = a.agent_id)
      and exists (select 1 from agent_jobs o join job_waits w on w.job_id = o.job_id and w.kind = 'signal'
        and w.answered_at is null and w.subject_id = a.key where o.tenant_id = a.tenant_id and o.agent_id = a.agent_id)) as unbound

-- name: check_agents
-- What belongs to no single job, of all jobs and agents of this tenant, counted. One statement, so that all of it is of one moment.
-- ended: agents count jobs that have ended. undelivered: nothing would look at the mailbox when these messages are due.
select (select count(*) from agent_jobs a where a.tenant_id = :tenant_id
    and not exists (select 1 from jobs j where j.id = a.job_id and j.finished_at is null)) as ended,
  (select count(*) from agent_messages m join agent_instances i on i.tenant_id = m.tenant_id and i.id = m.to_agent_id
    where m.tenant_id = :tenant_id and m.consumed_by_job_id is null and m.refused is null and m.channel not like 'reply:%'
      and i.paused_at is null and (m.due_at > (select now from clock) or not exists (select 1 from agent_jobs a
        join jobs j on j.id = a.job_id where a.tenant_id = i.tenant_id and a.agent_id = i.id and j.finished_at is null))
      and not exists (select 1 from agent_deliveries d where d.tenant_id = i.tenant_id and d.agent_id = i.id
        and (d.at >= m.due_at or m.due_at <= (select now from clock)))) as undelivered,
  (select count(*) from agent_states s join jobs j on j.id = s.job_id where s.tenant_id = :tenant_id
    and not exists (select 1 from job_events e where e.job_id = s.job_id and e.type = 'session_saved'
      and e.payload like '%"version": ' || s.version || ',%')) as sessions,
  (select count(*) from job_tags t where t.tenant_id = :tenant_id and not exists (select 1 from jobs j, json_each(coalesce(j.tags, '[]')) e
    where j.id = t.job_id and j.tenant_id = t.tenant_id and e.value = t.tag)) as tags,
  (select count(*) from unique_keys k where k.tenant_id = :tenant_id and k.until is null and not exists (select 1 from jobs j
    where j.id = k.job_id and j.finished_at is null and j.kind = k.kind and j.unique_key = k.key)) as unique_keys,
  (select count(*) from queue_pauses where tenant_id = :tenant_id and resumed_at < paused_at) as pauses
