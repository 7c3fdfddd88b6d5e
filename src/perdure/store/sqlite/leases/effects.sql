-- What commits together with the events of an attempt, or with its end: see effects.py.

-- name: patch_state
-- Adds tokens and cost; null leaves the rest as it is.
insert into job_state (job_id, checkpoint, progress, progress_text, tokens, cost, updated_at)
values (:job_id, :checkpoint, :progress, :progress_text, :tokens, :cost, :now)
on conflict (job_id) do update set checkpoint = coalesce(excluded.checkpoint, job_state.checkpoint),
  progress = coalesce(excluded.progress, job_state.progress),
  progress_text = coalesce(excluded.progress_text, job_state.progress_text),
  tokens = job_state.tokens + excluded.tokens, cost = add_cost(job_state.cost, excluded.cost), updated_at = excluded.updated_at

-- name: open_wait
-- Opened again for the same subject, a wait keeps its answer.
insert into job_waits as w (job_id, key, kind, subject_id, until, opened_at)
values (:job_id, :key, :kind, :subject_id, :until, :now)
on conflict (job_id, kind, key) do update set subject_id = excluded.subject_id, until = excluded.until,
  answered_at = case when w.subject_id is excluded.subject_id then w.answered_at end

-- name: close_waits
delete from job_waits where job_id = :job_id and kind = :kind and key = :key

-- name: await_jobs
-- What a wait that was opened just before waits for. child_ids: with commas. What has ended is left out.
insert into awaited_jobs (job_id, key, child_id)
select :job_id, :key, e.value from json_each('["' || replace(:child_ids, ',', '","') || '"]') e join jobs j on j.id = e.value
where j.finished_at is null
on conflict do nothing

-- name: settle_waits
-- Answers a wait that waits for nothing.
update job_waits set answered_at = :now where job_id = :job_id and kind = 'child' and key = :key and answered_at is null
  and not exists (select 1 from awaited_jobs a where a.job_id = :job_id and a.key = :key)

-- name: spawn_job
insert into jobs (id, parent_id, tenant_id, kind, queue, lane, goal, payload, priority, max_retries, run_at, deadline, note,
  concurrency_key, max_concurrent, tags, created_at, updated_at)
values (:id, :job_id, :tenant_id, :kind, :queue, case when :tenant_id = 'default' then :queue else :tenant_id || ':' || :queue end,
  :goal, :payload, :priority, :max_retries, coalesce(:run_at, :now + cast(:delay * 1000000 as integer)), :deadline, :note,
  :concurrency_key, :max_concurrent, :tags, :now, :now)
on conflict (id) do nothing

-- name: spawn_event
-- Versions from 2 of the log of a child that the same transaction has stored.
insert into job_events (job_id, version, created_at, attempt, event_id, type, payload)
select :id, :version, :now, 0, :event_id, :type, :payload from jobs where id = :id and parent_id = :job_id and version = 1

-- name: spawn_head
update jobs set version = :version, prev_status = status, updated_at = :now where id = :id and parent_id = :job_id and version = 1

-- name: add_tool_run
insert into tool_runs (job_id, tenant_id, id, attempt, tool, account_id, worker_id, started_at, finished_at, exit_code, class, detail, message, stdout, stderr, output_files, tokens_in, tokens_out, tokens_cached, cost, latency_ms, session_id, final_text, sandbox)
values (:job_id, :tenant_id, :id, :attempt, :tool, :account_id, :worker_id, :started_at, :finished_at, :exit_code, :class, :detail, :message, :stdout, :stderr, :output_files, :tokens_in, :tokens_out, :tokens_cached, :cost, :latency_ms, :session_id, :final_text, :sandbox)
on conflict (job_id, attempt) do nothing

-- name: withdraw_approvals
update approvals set status = 'CANCELLED', decided_at = :now, decided_via = 'system', comment = 'the job went on without it'
where id = :id and job_id = :job_id and status = 'PENDING'

-- name: release_signals
-- What a wait that ends without it had taken is pending again.
update signals set consumed_by_job_id = null, consumed_at = null, wait_key = null
where consumed_by_job_id = :job_id and wait_key = :key

-- name: refuse_signals
-- What a wait has taken does not fit: it stays, with the reason, and the wait takes the next.
update signals set wait_key = null, refused = :error where consumed_by_job_id = :job_id and wait_key = :key

-- name: bind_signals
-- The oldest pending signals of a key go to the oldest open waits for it.
update signals set consumed_by_job_id = :job_id, consumed_at = :now, wait_key = pair.wait_key
from (select s.id, w.wait_key from
    (select id, row_number() over (order by created_at, id) as place from signals
      where job_id = :job_id and key = :key and consumed_at is null) s
  join
    (select key as wait_key, row_number() over (order by opened_at, length(key), key) as place from job_waits
      where job_id = :job_id and kind = 'signal' and subject_id = :key and answered_at is null
        and not exists (select 1 from signals b where b.consumed_by_job_id = :job_id and b.wait_key = job_waits.key)) w
  on w.place = s.place) pair
where signals.id = pair.id

-- name: answer_bound
-- A wait that has taken a signal is answered.
update job_waits set answered_at = :now where job_id = :job_id and kind = 'signal' and subject_id = :key and answered_at is null
  and exists (select 1 from signals s where s.consumed_by_job_id = :job_id and s.wait_key = job_waits.key)

-- name: send_message
insert into agent_messages (id, tenant_id, to_agent_id, from_agent_id, channel, payload, session_id, created_at, due_at, expires_at,
  causation_id, idempotency_key, job_id, reply_to, reply_channel)
values (:id, :tenant_id, :to_agent_id, (select agent_id from jobs where id = :job_id), :channel, :payload, :session_id, :now,
  :now + cast(:delay * 1000000 as integer), :now + cast(:expires_in * 1000000 as integer),
  :causation_id, :idempotency_key, :job_id, :reply_to, :reply_channel)
on conflict do nothing

-- name: release_messages
-- What a wait that ends without them had taken is pending again.
update agent_messages set consumed_by_job_id = null, consumed_at = null, consumed_key = null
where consumed_by_job_id = :job_id and consumed_key = :key

-- name: look_at_mailbox
insert into agent_deliveries (tenant_id, agent_id, at)
select :tenant_id, coalesce(:mailbox, agent_id), :now from jobs where id = :job_id and coalesce(:mailbox, agent_id) is not null
on conflict do nothing
-- name: memory_scope
-- The scope of an entry that is to be written. Every change of an entry comes through this row.
insert into memory_scopes as s (tenant_id, scope, version, entries, tokens)
select :tenant_id, :scope, 1, 1, :tokens
where not exists (select 1 from memory_entries e where e.tenant_id = :tenant_id and e.id = :id)
on conflict (tenant_id, scope) do update set version = s.version + 1, entries = s.entries + 1, tokens = s.tokens + excluded.tokens

-- name: memory_entry
insert into memory_entries (tenant_id, id, scope_no, text, tags, source, kind, job_id, created_by, created_at, pinned_at, tokens,
  tokeniser, changed)
select :tenant_id, :id, s.no, :text, :tags, :source, :kind, :job_id, :created_by, coalesce(:created_at, :now), :pinned_at, :tokens,
  :tokeniser, s.version
from memory_scopes s where s.tenant_id = :tenant_id and s.scope = :scope
on conflict (tenant_id, id) do nothing

-- name: memory_terms
insert into memory_terms (scope_no, term, entry_no, count, length)
select e.scope_no, t.key, e.no, t.value, :length
from memory_entries e cross join json_each(:terms) t
where e.tenant_id = :tenant_id and e.id = :id and e.archived_at is null
on conflict (scope_no, term, entry_no) do update set count = excluded.count, length = excluded.length

-- name: memory_vector
-- vector: those of the chunks, one after the other.
insert into memory_vectors (entry_no, chunk, embedder, vector)
with recursive c(no) as (select 0 union all select no + 1 from c where no + 1 < :chunks)
select e.no, c.no, :embedder, substr(:vector, c.no * (length(:vector) / :chunks) + 1, length(:vector) / :chunks)
from memory_entries e cross join c
where e.tenant_id = :tenant_id and e.id = :id and e.archived_at is null
on conflict (entry_no, chunk) do update set embedder = excluded.embedder, vector = excluded.vector

-- name: remove_range
delete from documents
where tenant_id = :tenant_id and collection = :collection and key >= :first and (:before is null or key < :before)

-- name: add_document
insert into documents (tenant_id, collection, key, value, body, created_at, updated_at)
values (:tenant_id, :collection, :key, :value, :body, :now, :now)
on conflict do nothing
-- name: spend_budget
-- key: the scope of the budget.
update budgets set tokens = tokens + :tokens, cost = add_cost(cost, :cost), tool_calls = tool_calls + :tool_calls
where tenant_id = :tenant_id and scope = :key

-- name: raise_budget
-- A person has given more. key: the scope. Only once after each breach, however many jobs have asked.
update budgets set max_tokens = max_tokens + :tokens, max_tool_calls = max_tool_calls + :tool_calls,
  max_cost = case when max_cost is not null then add_cost(max_cost, :cost) end, max_children = max_children + :children,
  warned = '', extensions = extensions + 1
where tenant_id = :tenant_id and scope = :key and extensions = :extensions

-- name: use_hold
update budget_holds set used_tokens = used_tokens + :tokens, used_cost = add_cost(used_cost, :cost)
where job_id = :job_id and key = :key

-- name: release_hold
delete from budget_holds where job_id = :job_id and key = :key
