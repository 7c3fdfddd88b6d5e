-- Signals to agents. Where the dialect differs: no row locks, because a transaction of the writer has the file for itself.

-- name: find_agent_signal
-- One that was sent before: by its own id, or by the one its caller gave.
select *, coalesce(consumed_by_job_id is null and expires_at <= (select now from clock), 0) as expired from agent_signals
where tenant_id = :tenant_id and agent_id = :agent_id and (id = :id or caller_id = :caller_id)

-- name: insert_agent_signal
insert into agent_signals (id, tenant_id, agent_id, key, payload, caller_id, created_at, expires_at, actor, via)
values (:id, :tenant_id, :agent_id, :key, :payload, :caller_id, :now, :now + cast(:expires_in * 1000000 as integer), :actor, :via)

-- name: agent_signal_waits
-- The waits of an agent's jobs for signals of which one is pending, the oldest first.
select w.job_id, w.key, w.subject_id from agent_jobs a
join job_waits w on w.job_id = a.job_id and w.kind = 'signal' and w.answered_at is null
where a.tenant_id = :tenant_id and a.agent_id = :agent_id and w.subject_id in (
  select s.key from agent_signals s where s.tenant_id = :tenant_id and s.agent_id = :agent_id and s.consumed_by_job_id is null
    and (s.expires_at is null or s.expires_at > :now))
order by w.opened_at, w.job_id, length(w.key), w.key

-- name: first_claimed
-- only: sqlite a part of the twin's function give_agent_signals. ids: JSON array; those of agents with pending signals.
select j.id, j.agent_id from json_each(:ids) e cross join jobs j on j.id = e.value
where j.agent_id is not null and j.attempt = 1 and exists (select 1 from agent_signals s
  where s.tenant_id = j.tenant_id and s.agent_id = j.agent_id and s.consumed_by_job_id is null
    and (s.expires_at is null or s.expires_at > :now))
order by j.priority desc, j.id

-- name: pending_agent_signals
-- key: null for any.
select id, key from agent_signals
where tenant_id = :tenant_id and agent_id = :agent_id and consumed_by_job_id is null and (:key is null or key = :key)
  and (expires_at is null or expires_at > :now)
order by created_at, id limit :limit

-- name: give_agent_signal
update agent_signals set consumed_by_job_id = :job_id, consumed_at = :now where id = :id

-- name: keep_agent_signal
-- From here on it is a signal of the job.
insert into signals (id, tenant_id, job_id, key, payload, actor, via, created_at)
select id, tenant_id, consumed_by_job_id, key, payload, actor, via, created_at from agent_signals where id = :id

-- name: list_agent_signals
select *, coalesce(consumed_by_job_id is null and expires_at <= (select now from clock), 0) as expired from agent_signals
where tenant_id = :tenant_id and agent_id = :agent_id and (:before is null or id < :before)
  and (not :pending or consumed_by_job_id is null and (expires_at is null or expires_at > (select now from clock)))
order by id desc limit :limit
