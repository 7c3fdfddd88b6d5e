-- What commits together with the events of an attempt, or with its end: see effects.py. Each parameter is an array with one element
-- for each row, named as the column. For `any (array[x])` see record.sql.

-- name: patch_state
insert into perdure.job_state (job_id, checkpoint, progress, progress_text, tokens, cost)
select job_id, checkpoint::json, progress, progress_text, tokens, cost
from unnest(:job_id::uuid[], :checkpoint::text[], :progress::float8[], :progress_text::text[], :tokens::bigint[], :cost::numeric[])
  u(job_id, checkpoint, progress, progress_text, tokens, cost)
on conflict (job_id) do update set checkpoint = coalesce(excluded.checkpoint, job_state.checkpoint),
  progress = coalesce(excluded.progress, job_state.progress),
  progress_text = coalesce(excluded.progress_text, job_state.progress_text),
  tokens = job_state.tokens + excluded.tokens, cost = job_state.cost + excluded.cost, updated_at = perdure.db_now()

-- name: open_wait
-- Opened again for the same subject, a wait keeps its answer.
insert into perdure.job_waits as w (job_id, key, kind, subject_id, until)
select * from unnest(:job_id::uuid[], :key::text[], :kind::text[], :subject_id::text[], :until::timestamptz[])
on conflict (job_id, kind, key) do update set subject_id = excluded.subject_id, until = excluded.until,
  answered_at = case when w.subject_id is not distinct from excluded.subject_id then w.answered_at end

-- name: close_waits
delete from perdure.job_waits w using unnest(:job_id::uuid[], :kind::text[], :key::text[]) u(job_id, kind, key)
where w.job_id = any (array[u.job_id]) and w.kind = u.kind and w.key = u.key

-- name: await_jobs
-- What a wait that was opened just before waits for. child_ids: of each wait, with commas. What has ended already is taken out by
-- settle_waits, in a later transaction, which sees every end that did not see these rows.
insert into perdure.awaited_jobs (job_id, key, child_id)
select u.job_id, u.key, c.id::uuid from unnest(:job_id::uuid[], :key::text[], :child_ids::text[]) u(job_id, key, child_ids)
cross join lateral unnest(string_to_array(u.child_ids, ',')) c(id)
on conflict do nothing

-- name: settle_waits
-- A function, because each of its statements needs a snapshot of its own.
select perdure.settle_waits(:job_id::uuid[], :key::text[])

-- name: spawn_job
-- The lane is derived by a trigger.
insert into perdure.jobs (id, parent_id, tenant_id, kind, queue, goal, payload, priority, max_retries, run_at, deadline, note,
  concurrency_key, max_concurrent, tags)
select u.id, u.job_id, p.tenant_id, u.kind, u.queue, u.goal, u.payload::json, u.priority, u.max_retries,
  coalesce(u.run_at, perdure.db_now() + u.delay * interval '1 second'), u.deadline, u.note::json, u.concurrency_key,
  u.max_concurrent, u.tags::json
from unnest(:job_id::uuid[], :id::uuid[], :kind::text[], :queue::text[], :goal::text[], :payload::text[], :priority::smallint[],
  :max_retries::smallint[], :run_at::timestamptz[], :delay::float8[], :deadline::timestamptz[], :note::text[],
  :concurrency_key::text[], :max_concurrent::int[], :tags::text[])
  u(job_id, id, kind, queue, goal, payload, priority, max_retries, run_at, delay, deadline, note, concurrency_key, max_concurrent,
    tags)
join perdure.jobs p on p.id = any (array[u.job_id])
on conflict (id) do nothing

-- name: spawn_event
-- Versions from 2 of the log of a child that the same transaction has stored.
insert into perdure.job_events (job_id, version, attempt, event_id, type, payload)
select j.id, u.version, 0, u.event_id, u.type, u.payload::json
from unnest(:job_id::uuid[], :id::uuid[], :version::int[], :event_id::uuid[], :type::text[], :payload::text[])
  u(job_id, id, version, event_id, type, payload)
join perdure.jobs j on j.id = any (array[u.id]) and j.parent_id = u.job_id and j.version = 1

-- name: spawn_head
update perdure.jobs j set version = u.version, prev_status = j.status
from unnest(:job_id::uuid[], :id::uuid[], :version::int[]) u(job_id, id, version)
where j.id = any (array[u.id]) and j.parent_id = u.job_id and j.version = 1

-- name: add_tool_run
insert into perdure.tool_runs (job_id, tenant_id, id, attempt, tool, account_id, worker_id, started_at, finished_at, exit_code, class, detail, message, stdout, stderr, output_files, tokens_in, tokens_out, tokens_cached, cost, latency_ms, session_id, final_text, sandbox)
select u.job_id, j.tenant_id, u.id, u.attempt, u.tool, u.account_id, u.worker_id, u.started_at, u.finished_at, u.exit_code, u.class, u.detail, u.message, u.stdout, u.stderr, u.output_files::json, u.tokens_in, u.tokens_out, u.tokens_cached, u.cost, u.latency_ms, u.session_id, u.final_text, u.sandbox::json
from unnest(:job_id::uuid[], :id::uuid[], :attempt::int[], :tool::text[], :account_id::text[], :worker_id::text[], :started_at::timestamptz[], :finished_at::timestamptz[], :exit_code::int[], :class::text[], :detail::text[], :message::text[], :stdout::text[], :stderr::text[], :output_files::text[], :tokens_in::bigint[], :tokens_out::bigint[], :tokens_cached::bigint[], :cost::numeric[], :latency_ms::bigint[], :session_id::text[], :final_text::text[], :sandbox::text[])
  u(job_id, id, attempt, tool, account_id, worker_id, started_at, finished_at, exit_code, class, detail, message, stdout, stderr, output_files, tokens_in, tokens_out, tokens_cached, cost, latency_ms, session_id, final_text, sandbox)
join perdure.jobs j on j.id = any (array[u.job_id])
on conflict (job_id, attempt) do nothing

-- name: withdraw_approvals
update perdure.approvals a set status = 'CANCELLED', decided_at = perdure.db_now(), decided_via = 'system',
  comment = 'the job went on without it'
from unnest(:job_id::uuid[], :id::uuid[]) u(job_id, id)
where a.id = any (array[u.id]) and a.job_id = u.job_id and a.status = 'PENDING'

-- name: release_signals
-- What a wait that ends without it had taken is pending again.
update perdure.signals s set consumed_by_job_id = null, consumed_at = null, wait_key = null
from unnest(:job_id::uuid[], :key::text[]) u(job_id, key)
where s.consumed_by_job_id = any (array[u.job_id]) and s.wait_key = u.key

-- name: refuse_signals
-- What a wait has taken does not fit: it stays, with the reason, and the wait takes the next.
update perdure.signals s set wait_key = null, refused = u.error
from unnest(:job_id::uuid[], :key::text[], :error::text[]) u(job_id, key, error)
where s.consumed_by_job_id = any (array[u.job_id]) and s.wait_key = u.key

-- name: bind_signals
-- The oldest pending signals of a key go to the oldest open waits for it.
update perdure.signals t set consumed_by_job_id = pair.job_id, consumed_at = perdure.db_now(), wait_key = pair.wait_key
from (select u.job_id, s.id, w.wait_key from unnest(:job_id::uuid[], :key::text[]) u(job_id, key)
  cross join lateral (select s.id, row_number() over (order by s.created_at, s.id) as place from perdure.signals s
    where s.job_id = any (array[u.job_id]) and s.key = u.key and s.consumed_at is null) s
  join lateral (select w.key as wait_key, row_number() over (order by w.opened_at, length(w.key), w.key) as place
    from perdure.job_waits w
    where w.job_id = any (array[u.job_id]) and w.kind = 'signal' and w.subject_id = u.key and w.answered_at is null
      and not exists (select from perdure.signals b where b.consumed_by_job_id = w.job_id and b.wait_key = w.key)) w
  on w.place = s.place) pair
where t.id = any (array[pair.id])

-- name: answer_bound
-- A wait that has taken a signal is answered. A statement of its own, as it reads what bind_signals wrote.
update perdure.job_waits w set answered_at = perdure.db_now() from unnest(:job_id::uuid[], :key::text[]) u(job_id, key)
where w.job_id = any (array[u.job_id]) and w.kind = 'signal' and w.subject_id = u.key and w.answered_at is null
  and exists (select from perdure.signals s where s.consumed_by_job_id = w.job_id and s.wait_key = w.key)

-- name: send_message
insert into perdure.agent_messages (id, tenant_id, to_agent_id, from_agent_id, channel, payload, session_id, due_at, expires_at,
  causation_id, idempotency_key, job_id, reply_to, reply_channel)
select u.id, j.tenant_id, u.to_agent_id, j.agent_id, u.channel, u.payload::json, u.session_id,
  perdure.db_now() + u.delay * interval '1 second', perdure.db_now() + u.expires_in * interval '1 second', u.causation_id,
  u.idempotency_key, j.id, u.reply_to, u.reply_channel
from unnest(:job_id::uuid[], :id::uuid[], :to_agent_id::text[], :payload::text[], :channel::text[], :session_id::text[],
  :delay::float8[], :expires_in::float8[], :causation_id::text[], :idempotency_key::text[], :reply_to::uuid[],
  :reply_channel::text[])
  u(job_id, id, to_agent_id, payload, channel, session_id, delay, expires_in, causation_id, idempotency_key, reply_to, reply_channel)
join perdure.jobs j on j.id = any (array[u.job_id])
on conflict do nothing

-- name: release_messages
-- What a wait that ends without them had taken is pending again.
update perdure.agent_messages m set consumed_by_job_id = null, consumed_at = null, consumed_key = null
from unnest(:job_id::uuid[], :key::text[]) u(job_id, key)
where m.consumed_by_job_id = any (array[u.job_id]) and m.consumed_key = u.key

-- name: look_at_mailbox
insert into perdure.agent_deliveries (tenant_id, agent_id, at)
select distinct j.tenant_id, coalesce(u.mailbox, j.agent_id), perdure.db_now()
from unnest(:job_id::uuid[], :mailbox::text[]) u(job_id, mailbox) join perdure.jobs j on j.id = any (array[u.job_id])
where coalesce(u.mailbox, j.agent_id) is not null
-- name: memory_scope
-- The scopes of entries that are to be written, locked in the order of their names. Every change of an entry comes through these rows.
insert into perdure.memory_scopes as s (tenant_id, scope, version, entries, tokens)
select u.tenant_id, u.scope, 1, count(*), sum(u.tokens)
from unnest(:job_id::uuid[], :tenant_id::text[], :id::uuid[], :scope::text[], :tokens::int[]) u(job_id, tenant_id, id, scope, tokens)
where not exists (select from perdure.memory_entries e where e.tenant_id = u.tenant_id and e.id = u.id)
group by u.tenant_id, u.scope order by u.tenant_id, u.scope
on conflict (tenant_id, scope) do update set version = s.version + 1, entries = s.entries + excluded.entries,
  tokens = s.tokens + excluded.tokens

-- name: memory_entry
insert into perdure.memory_entries (tenant_id, id, scope_no, text, tags, source, kind, job_id, created_by, created_at, pinned_at, tokens,
  tokeniser, changed)
select u.tenant_id, u.id, s.no, u.text, array(select json_array_elements_text(u.tags::json)), u.source, u.kind, u.job_id, u.created_by,
  coalesce(u.created_at, perdure.db_now()), u.pinned_at, u.tokens, u.tokeniser, s.version
from unnest(:job_id::uuid[], :tenant_id::text[], :id::uuid[], :scope::text[], :text::text[], :tags::text[], :source::text[],
  :kind::text[], :created_by::text[], :created_at::timestamptz[], :pinned_at::timestamptz[], :tokens::int[], :tokeniser::text[])
  with ordinality u(job_id, tenant_id, id, scope, text, tags, source, kind, created_by, created_at, pinned_at, tokens, tokeniser, place)
join perdure.memory_scopes s on s.tenant_id = u.tenant_id and s.scope = u.scope
order by u.place
on conflict (tenant_id, id) do nothing

-- name: memory_terms
insert into perdure.memory_terms (scope_no, term, entry_no, count, length)
select e.scope_no, t.key, e.no, t.value::int, u.length
from unnest(:job_id::uuid[], :tenant_id::text[], :id::uuid[], :terms::text[], :length::int[]) u(job_id, tenant_id, id, terms, length)
join perdure.memory_entries e on e.tenant_id = u.tenant_id and e.id = u.id and e.archived_at is null
cross join lateral json_each_text(u.terms::json) t
on conflict (scope_no, term, entry_no) do update set count = excluded.count, length = excluded.length

-- name: memory_vector
-- vector: those of the chunks, one after the other.
insert into perdure.memory_vectors (entry_no, chunk, embedder, vector)
select e.no, c.no, u.embedder, substring(u.vector from c.no * (length(u.vector) / u.chunks) + 1 for length(u.vector) / u.chunks)
from unnest(:job_id::uuid[], :tenant_id::text[], :id::uuid[], :embedder::text[], :vector::bytea[], :chunks::int[])
  u(job_id, tenant_id, id, embedder, vector, chunks)
join perdure.memory_entries e on e.tenant_id = u.tenant_id and e.id = u.id and e.archived_at is null
cross join lateral generate_series(0, u.chunks - 1) c(no)
on conflict (entry_no, chunk) do update set embedder = excluded.embedder, vector = excluded.vector

-- name: remove_range
delete from perdure.documents d
using unnest(:job_id::uuid[], :tenant_id::text[], :collection::text[], :first::text[], :before::text[])
  u(job_id, tenant_id, collection, first, before)
where d.tenant_id = u.tenant_id and d.collection = u.collection and d.key >= u.first and (u.before is null or d.key < u.before)

-- name: add_document
insert into perdure.documents (tenant_id, collection, key, value, body)
select u.tenant_id, u.collection, u.key, u.value::json, u.body
from unnest(:job_id::uuid[], :tenant_id::text[], :collection::text[], :key::text[], :value::text[], :body::bytea[])
  u(job_id, tenant_id, collection, key, value, body)
order by u.tenant_id, u.collection, u.key
on conflict do nothing
-- name: spend_budget
-- key: the scope of the budget. Locked in the order of all that lock several.
with u as materialized (
  select tenant_id, key as scope, sum(tokens)::bigint as tokens, sum(cost) as cost, sum(tool_calls)::bigint as tool_calls
  from unnest(:job_id::uuid[], :tenant_id::text[], :key::text[], :tokens::bigint[], :cost::numeric[], :tool_calls::bigint[])
    r(job_id, tenant_id, key, tokens, cost, tool_calls) group by 1, 2
), locked as materialized (
  select b.tenant_id, b.scope from perdure.budgets b join u on u.tenant_id = b.tenant_id and u.scope = b.scope
  order by b.tenant_id, b.scope for update of b
)
update perdure.budgets b set tokens = b.tokens + u.tokens, cost = b.cost + u.cost, tool_calls = b.tool_calls + u.tool_calls
from u join locked l on l.tenant_id = u.tenant_id and l.scope = u.scope where b.tenant_id = u.tenant_id and b.scope = u.scope

-- name: raise_budget
-- A person has given more. key: the scope. Only once after each breach, however many jobs have asked.
update perdure.budgets b set max_tokens = b.max_tokens + u.tokens, max_cost = b.max_cost + u.cost,
  max_tool_calls = b.max_tool_calls + u.tool_calls, max_children = b.max_children + u.children, warned = '',
  extensions = b.extensions + 1
from unnest(:job_id::uuid[], :tenant_id::text[], :key::text[], :extensions::int[], :tokens::bigint[], :cost::numeric[],
  :tool_calls::bigint[], :children::bigint[])
  u(job_id, tenant_id, key, extensions, tokens, cost, tool_calls, children)
where b.tenant_id = u.tenant_id and b.scope = u.key and b.extensions = u.extensions

-- name: use_hold
update perdure.budget_holds h set used_tokens = h.used_tokens + u.tokens, used_cost = h.used_cost + u.cost
from unnest(:job_id::uuid[], :key::text[], :tokens::bigint[], :cost::numeric[]) u(job_id, key, tokens, cost)
where h.job_id = any (array[u.job_id]) and h.key = u.key

-- name: release_hold
delete from perdure.budget_holds h using unnest(:job_id::uuid[], :key::text[]) u(job_id, key)
where h.job_id = any (array[u.job_id]) and h.key = u.key
