-- Agents as operators see and change them.

-- name: create_agent
insert into agent_instances (tenant_id, id, name, kind, queue, default_session_id, meta, intake, batch, on_busy,
  max_parallel_jobs, max_retries, backoff, created_at, updated_at)
values (:tenant_id, :id, :name, :kind, :queue, :default_session_id, :meta, :intake, :batch, :on_busy,
  :max_parallel_jobs, :max_retries, :backoff, :now, :now)
on conflict do nothing returning id

-- name: change_agent
-- As it is to be, in full. `paused` true keeps the time since when it is.
update agent_instances set name = :name, kind = :kind, queue = :queue, default_session_id = :default_session_id,
  meta = :meta, intake = :intake, batch = :batch, on_busy = :on_busy, max_parallel_jobs = :max_parallel_jobs,
  max_retries = :max_retries, backoff = :backoff,
  paused_at = case when :paused then coalesce(paused_at, :now) end, updated_at = :now
where tenant_id = :tenant_id and id = :id

-- name: get_agent
select a.*, case when a.paused_at is not null then (select count(*) from (select 1 from agent_messages m
    where m.tenant_id = a.tenant_id and m.to_agent_id = a.id and m.consumed_by_job_id is null and m.refused is null limit 1000))
  end as waiting_messages
from agents a where a.tenant_id = :tenant_id and a.id = :id

-- name: list_agents
select * from agents a where a.tenant_id = :tenant_id and (:after is null or a.id > :after)
  and (:status is null or a.status = :status)
order by a.id limit :limit

-- name: agent_of_job
select j.agent_id, j.session_id, exists (select 1 from signals s where s.job_id = j.id) as has_signals, i.* from jobs j
left join agent_instances i on i.tenant_id = j.tenant_id and i.id = j.agent_id
where j.id = :job_id and j.tenant_id = :tenant_id and j.agent_id is not null

-- name: agent_in_use
-- What keeps an agent from being deleted, each counted up to 1,000.
select (select count(*) from (select 1 from agent_jobs a join jobs j on j.id = a.job_id
    where a.tenant_id = :tenant_id and a.agent_id = :agent_id and j.finished_at is null limit 1000)) as jobs,
  (select count(*) from (select 1 from agent_messages m where m.tenant_id = :tenant_id and m.to_agent_id = :agent_id
    and m.consumed_by_job_id is null and m.refused is null and m.channel not like 'reply:%' limit 1000)) as messages,
  (select count(*) from (select 1 from agent_signals s where s.tenant_id = :tenant_id and s.agent_id = :agent_id
    and s.consumed_by_job_id is null and (s.expires_at is null or s.expires_at > :now) limit 1000)) as signals

-- name: delete_agent
delete from agent_instances where tenant_id = :tenant_id and id = :agent_id

-- name: refuse_messages
-- No job gets them any more.
update agent_messages set refused = 'expired'
where tenant_id = :tenant_id and to_agent_id = :agent_id and consumed_by_job_id is null and refused is null

-- name: end_agent_signals
-- As refuse_messages.
update agent_signals set expires_at = :now where tenant_id = :tenant_id and agent_id = :agent_id
  and consumed_by_job_id is null and (expires_at is null or expires_at > :now)

-- name: delete_states
delete from agent_states where tenant_id = :tenant_id and agent_id = :agent_id

-- name: delete_deliveries
delete from agent_deliveries where tenant_id = :tenant_id and agent_id = :agent_id
