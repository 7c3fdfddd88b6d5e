-- Deleting finished jobs. Each statement is given its jobs as an array: with their number known, the planner reaches even the
-- largest table by its key.

-- name: prune_window
-- Where one look ends, so that it is bounded whatever matches. No row: at the end.
select id from perdure.jobs where (:after::uuid is null or id > :after) and (:before::uuid is null or id < :before)
order by id limit 1 offset :rows::int - 1

-- name: list_prunable
select id, version from perdure.jobs
where (:after::uuid is null or id > :after) and (:up_to::uuid is null or id <= :up_to) and (:before::uuid is null or id < :before)
  and tenant_id = :tenant_id and status = any (:statuses::text[]::perdure.job_status[])
  and finished_at <= perdure.db_now() - :older_than::float8 * interval '1 second'
  and (:kinds::text[] is null or kind = any (:kinds)) and (:queues::text[] is null or queue = any (:queues))
  and (not :heavy::bool or pruned_at is null)
  and (parent_id is null or not exists (select from perdure.jobs p where p.id = jobs.parent_id and p.finished_at is null offset 0))
  and (agent_id is null or not exists (select from perdure.agent_messages m join perdure.jobs p on p.id = m.job_id
    where m.consumed_by_job_id = jobs.id and m.reply_channel is not null and p.finished_at is null offset 0))
order by id limit :limit

-- name: prune_pick
-- What another prune has locked is left to it. The children of a live job stay: it reads their results when it replays. So does what
-- has got a question whose sender waits for the reply: the wait is found by it.
insert into perdure.prune_batch (job_id)
select id from perdure.jobs where tenant_id = :tenant_id and id = any (:ids::uuid[])
  and status in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER')
  and (parent_id is null or not exists (select from perdure.jobs p where p.id = jobs.parent_id and p.finished_at is null offset 0))
  and (agent_id is null or not exists (select from perdure.agent_messages m join perdure.jobs p on p.id = m.job_id
    where m.consumed_by_job_id = jobs.id and m.reply_channel is not null and p.finished_at is null offset 0))
order by id for update skip locked
on conflict (job_id) do update set transaction_id = pg_current_xact_id() returning job_id

-- name: prune_memory
-- Of jobs that have a conversation, variables or actions, the events that these are read from; other jobs leave nothing.
insert into perdure.pruned_memory (job_id, version, tenant_id, created_at, attempt, event_id, type, payload)
select x.job_id, x.version, j.tenant_id, x.created_at, x.attempt, x.event_id, x.type, x.payload
from (select e.*, bool_or(e.type in ('message_appended', 'variable_set', 'tool_called')) over (partition by e.job_id) as has_memory
  from perdure.job_events e where e.job_id = any (:ids::uuid[]) and e.type in ('message_appended', 'variable_set', 'tool_called',
    'tool_returned', 'tool_failed', 'failure_caught', 'usage_recorded')) x
join perdure.jobs j on j.id = x.job_id and j.id = any (:ids)
where x.has_memory on conflict do nothing

-- name: list_pruned_memory
select m.job_id, m.version, m.created_at, m.attempt, m.event_id, m.type, m.payload,
  null::perdure.job_status as from_status, null::perdure.job_status as to_status, null::real as ran
from perdure.pruned_memory m where m.job_id = :job_id and m.tenant_id = :tenant_id and m.version > :after
  and m.type = any (:types::text[]) order by m.version limit :limit

-- name: prune_events
delete from perdure.job_events where job_id = any (:ids::uuid[])

-- name: prune_runs
delete from perdure.job_incomplete_runs where job_id = any (:ids::uuid[])

-- name: prune_state
delete from perdure.job_state where job_id = any (:ids::uuid[])

-- name: prune_approvals
delete from perdure.approvals where job_id = any (:ids::uuid[])

-- name: prune_signals
delete from perdure.signals where job_id = any (:ids::uuid[])

-- name: prune_messages
-- What these jobs have got.
delete from perdure.agent_messages where consumed_by_job_id = any (:ids::uuid[])

-- name: prune_failures
delete from perdure.job_failures where job_id = any (:ids::uuid[])

-- name: prune_files
delete from perdure.job_files where job_id = any (:ids::uuid[])

-- name: prune_tool_runs
delete from perdure.tool_runs where job_id = any (:ids::uuid[])

-- name: prune_tool_output
delete from perdure.tool_output where job_id = any (:ids::uuid[])

-- name: prune_unique_keys
delete from perdure.unique_keys k using (select tenant_id, kind, unique_key, id from perdure.jobs
  where id = any (:ids::uuid[]) and unique_key is not null offset 0) g
where k.tenant_id = any (array[g.tenant_id]) and k.kind = any (array[g.kind]) and k.key = any (array[g.unique_key])
  and k.job_id = g.id

-- name: prune_tags
delete from perdure.job_tags t using (select j.tenant_id, j.id, e.tag from perdure.jobs j, json_array_elements_text(j.tags) e(tag)
  where j.id = any (:ids::uuid[]) and j.tags is not null offset 0) g
where t.tenant_id = g.tenant_id and t.tag = g.tag and t.job_id = g.id

-- name: prune_jobs
delete from perdure.jobs where id = any (:ids::uuid[])

-- name: prune_done
delete from perdure.prune_batch where job_id = any (:ids::uuid[])

-- name: lighten_jobs
-- The payload and the result go, the record and its log stay.
update perdure.jobs set payload = 'null', result = null, pruned_at = perdure.db_now(), prev_status = status
where id = any (array (select id from perdure.jobs where tenant_id = :tenant_id and id = any (:ids::uuid[]) and pruned_at is null
  and status in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER')
  and (parent_id is null or not exists (select from perdure.jobs p where p.id = jobs.parent_id and p.finished_at is null offset 0))
  order by id for update skip locked))
returning id

-- name: lighten_state
update perdure.job_state set checkpoint = null where job_id = any (:ids::uuid[]) and checkpoint is not null

-- name: lighten_files
delete from perdure.job_files where job_id = any (:ids::uuid[])

-- name: lighten_tool_output
delete from perdure.tool_output where job_id = any (:ids::uuid[])

-- name: message_window
select id from perdure.agent_messages where (:after::uuid is null or id > :after) and id < :before::uuid order by id limit :rows

-- name: forget_messages
-- What was refused, and what was sent to no agent. A job that has not ended keeps what it has sent: the wait for a reply is found
-- by its question. What another prune has locked is left to it.
delete from perdure.agent_messages d where d.id = any (array (
  select m.id from perdure.agent_messages m where m.id = any (:ids::uuid[]) and m.tenant_id = :tenant_id
    and m.created_at <= perdure.db_now() - :older_than::float8 * interval '1 second'
    and m.consumed_by_job_id is null and (m.refused is not null or m.to_agent_id is null and m.channel not like 'reply:%')
    and not exists (select from perdure.jobs p where p.id = m.job_id and p.finished_at is null offset 0)
  order by m.id for update skip locked))
returning d.id

-- name: signal_window
select id from perdure.agent_signals where (:after::uuid is null or id > :after) and id < :before::uuid order by id limit :rows

-- name: forget_signals
-- What expired, and what a job has got that has ended.
delete from perdure.agent_signals d where d.id = any (array (
  select s.id from perdure.agent_signals s where s.id = any (:ids::uuid[]) and s.tenant_id = :tenant_id
    and s.created_at <= perdure.db_now() - :older_than::float8 * interval '1 second'
    and case when s.consumed_at is null then s.expires_at <= perdure.db_now() - :older_than::float8 * interval '1 second'
      else s.consumed_at <= perdure.db_now() - :older_than::float8 * interval '1 second'
        and not exists (select from perdure.jobs j where j.id = s.consumed_by_job_id and j.finished_at is null offset 0) end
  order by s.id for update skip locked))
returning d.id

-- name: forget_workers
delete from perdure.workers w where w.tenant_id = :tenant_id
  and w.heartbeat_at < perdure.db_now() - :seconds::float8 * interval '1 second'
  and not exists (select 1 from perdure.job_claims k where k.worker_id = w.id) returning w.id

-- name: lead
insert into perdure.leaders (tenant_id, chore, holder, expires_at)
values (:tenant_id, :chore, :holder, perdure.db_now() + :ttl::float8 * interval '1 second')
on conflict (tenant_id, chore) do update set holder = excluded.holder, expires_at = excluded.expires_at
where leaders.holder = excluded.holder or leaders.expires_at <= perdure.db_now()
returning holder
