-- Taking finished jobs out of the database.
-- Where the dialect differs: lists are JSON arrays; the jobs to be deleted are named by prune_batch alone, which needs no
-- transaction id, because there is one writer and it empties the table; nothing is locked, so nothing is skipped.

-- name: prune_window
-- Where one look ends, so that it is bounded whatever matches. No row: at the end. '' is before every id, 'g' after.
select id from jobs where id > coalesce(:after, '') and id < coalesce(:before, 'g') order by id limit 1 offset :rows - 1

-- name: list_prunable
select id, version from jobs
where id > coalesce(:after, '') and id <= coalesce(:up_to, 'g') and id < coalesce(:before, 'g')
  and tenant_id = :tenant_id and status in (select value from json_each(:statuses))
  and finished_at <= :finished_before
  and (:kinds is null or kind in (select value from json_each(:kinds)))
  and (:queues is null or queue in (select value from json_each(:queues)))
  and (not :heavy or pruned_at is null)
  and (parent_id is null or not exists (select 1 from jobs p where p.id = jobs.parent_id and p.finished_at is null))
  and (agent_id is null or not exists (select 1 from agent_messages m join jobs p on p.id = m.job_id
    where m.consumed_by_job_id = jobs.id and m.reply_channel is not null and p.finished_at is null))
order by id limit :limit

-- name: prune_pick
-- ids: JSON array. The children of a live job stay: it reads their results when it replays. So does what has got a question whose
-- sender waits for the reply: the wait is found by it.
insert into prune_batch (job_id)
select j.id from json_each(:ids) e join jobs j on j.id = e.value
where j.tenant_id = :tenant_id and j.status in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER')
  and (j.parent_id is null or not exists (select 1 from jobs p where p.id = j.parent_id and p.finished_at is null))
  and (j.agent_id is null or not exists (select 1 from agent_messages m join jobs p on p.id = m.job_id
    where m.consumed_by_job_id = j.id and m.reply_channel is not null and p.finished_at is null))
on conflict (job_id) do nothing

-- name: prune_memory
-- Of jobs that have a conversation, variables or actions, the events that these are read from; other jobs leave nothing.
insert into pruned_memory (job_id, version, tenant_id, created_at, attempt, event_id, type, payload)
select x.job_id, x.version, j.tenant_id, x.created_at, x.attempt, x.event_id, x.type, x.payload
from (select e.*, max(e.type in ('message_appended', 'variable_set', 'tool_called')) over (partition by e.job_id) as has_memory
  from job_events e where e.job_id in (select job_id from prune_batch) and e.type in ('message_appended', 'variable_set',
    'tool_called', 'tool_returned', 'tool_failed', 'failure_caught', 'usage_recorded')) x
join jobs j on j.id = x.job_id
where x.has_memory on conflict do nothing

-- name: list_pruned_memory
-- types: JSON array
select m.job_id, m.version, m.created_at, m.attempt, m.event_id, m.type, m.payload,
  null as from_status, null as to_status, null as ran
from pruned_memory m where m.job_id = :job_id and m.tenant_id = :tenant_id and m.version > :after
  and m.type in (select value from json_each(:types)) order by m.version limit :limit

-- name: prune_events
delete from job_events where job_id in (select job_id from prune_batch)

-- name: prune_runs
delete from job_incomplete_runs where job_id in (select job_id from prune_batch)

-- name: prune_state
delete from job_state where job_id in (select job_id from prune_batch)

-- name: prune_approvals
delete from approvals where job_id in (select job_id from prune_batch)

-- name: prune_signals
delete from signals where job_id in (select job_id from prune_batch)

-- name: prune_messages
-- What these jobs have got.
delete from agent_messages where consumed_by_job_id in (select job_id from prune_batch)

-- name: prune_failures
delete from job_failures where job_id in (select job_id from prune_batch)

-- name: prune_files
delete from job_files where job_id in (select job_id from prune_batch)

-- name: prune_tool_runs
delete from tool_runs where job_id in (select job_id from prune_batch)

-- name: prune_tool_output
delete from tool_output where job_id in (select job_id from prune_batch)

-- name: prune_unique_keys
delete from unique_keys where (tenant_id, kind, key, job_id) in (select j.tenant_id, j.kind, j.unique_key, j.id from prune_batch b
  join jobs j on j.id = b.job_id where j.unique_key is not null)

-- name: prune_tags
delete from job_tags where (tenant_id, tag, job_id) in (select j.tenant_id, e.value, j.id from prune_batch b
  join jobs j on j.id = b.job_id, json_each(j.tags) e where j.tags is not null)

-- name: prune_jobs
delete from jobs where id in (select job_id from prune_batch)

-- name: prune_done
delete from prune_batch

-- name: lighten_jobs
-- The payload and the result go, the record and its log stay; ids: JSON array
update jobs set payload = 'null', result = null, pruned_at = :now, prev_status = status
where id in (select value from json_each(:ids)) and tenant_id = :tenant_id and pruned_at is null
  and status in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER')
  and (parent_id is null or not exists (select 1 from jobs p where p.id = jobs.parent_id and p.finished_at is null))

-- name: lighten_state
-- ids: JSON array
update job_state set checkpoint = null where checkpoint is not null and job_id in (select j.id from json_each(:ids) e
  join jobs j on j.id = e.value where j.tenant_id = :tenant_id and j.pruned_at is not null)

-- name: lighten_files
-- ids: JSON array
delete from job_files where job_id in (select j.id from json_each(:ids) e
  join jobs j on j.id = e.value where j.tenant_id = :tenant_id and j.pruned_at is not null)

-- name: lighten_tool_output
-- ids: JSON array
delete from tool_output where job_id in (select j.id from json_each(:ids) e
  join jobs j on j.id = e.value where j.tenant_id = :tenant_id and j.pruned_at is not null)

-- name: message_window
select id from agent_messages where id > coalesce(:after, '') and id < :before order by id limit :rows

-- name: forget_messages
-- What was refused, and what was sent to no agent. A job that has not ended keeps what it has sent: the wait for a reply is found
-- by its question. ids: JSON array
delete from agent_messages where id in (select value from json_each(:ids)) and tenant_id = :tenant_id and created_at <= :cutoff
  and consumed_by_job_id is null and (refused is not null or to_agent_id is null and channel not like 'reply:%')
  and not exists (select 1 from jobs p where p.id = agent_messages.job_id and p.finished_at is null)

-- name: signal_window
select id from agent_signals where id > coalesce(:after, '') and id < :before order by id limit :rows

-- name: forget_signals
-- What expired, and what a job has got that has ended. ids: JSON array
delete from agent_signals where id in (select value from json_each(:ids)) and tenant_id = :tenant_id and created_at <= :cutoff
  and case when consumed_at is null then expires_at <= :cutoff
    else consumed_at <= :cutoff
      and not exists (select 1 from jobs j where j.id = agent_signals.consumed_by_job_id and j.finished_at is null) end

-- name: forget_workers
delete from workers where tenant_id = :tenant_id and heartbeat_at < :before
  and not exists (select 1 from job_claims k where k.worker_id = workers.id)

-- name: lead
insert into leaders (tenant_id, chore, holder, expires_at) values (:tenant_id, :chore, :holder, :until)
on conflict (tenant_id, chore) do update set holder = excluded.holder, expires_at = excluded.expires_at
where leaders.holder = excluded.holder or leaders.expires_at <= :now
