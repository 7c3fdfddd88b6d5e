-- Signals to agents. What gives them to jobs has locked the agent and the job; the claim of a job does so in a function of the schema.

-- name: find_agent_signal
-- One that was sent before: by its own id, or by the one its caller gave.
select *, consumed_by_job_id is null and expires_at <= perdure.db_now() as expired from perdure.agent_signals
where tenant_id = :tenant_id and agent_id = :agent_id and (id = :id or caller_id = :caller_id)

-- name: insert_agent_signal
insert into perdure.agent_signals (id, tenant_id, agent_id, key, payload, caller_id, expires_at, actor, via)
values (:id, :tenant_id, :agent_id, :key, :payload::text::json, :caller_id,
  perdure.db_now() + :expires_in::float8 * interval '1 second', :actor, :via)

-- name: agent_signal_waits
-- The waits of an agent's jobs for signals of which one is pending, the oldest first.
select w.job_id, w.key, w.subject_id from perdure.agent_jobs a
join perdure.job_waits w on w.job_id = any (array[a.job_id]) and w.kind = 'signal' and w.answered_at is null
where a.tenant_id = :tenant_id and a.agent_id = :agent_id and w.subject_id in (
  select s.key from perdure.agent_signals s where s.tenant_id = :tenant_id and s.agent_id = :agent_id and s.consumed_by_job_id is null
    and (s.expires_at is null or s.expires_at > perdure.db_now()))
order by w.opened_at, w.job_id, length(w.key), w.key

-- name: pending_agent_signals
-- key: null for any.
select id, key from perdure.agent_signals
where tenant_id = :tenant_id and agent_id = :agent_id and consumed_by_job_id is null and (:key::text is null or key = :key)
  and (expires_at is null or expires_at > perdure.db_now())
order by created_at, id limit :limit for update skip locked

-- name: give_agent_signal
update perdure.agent_signals set consumed_by_job_id = :job_id, consumed_at = perdure.db_now() where id = :id

-- name: keep_agent_signal
-- From here on it is a signal of the job.
insert into perdure.signals (id, tenant_id, job_id, key, payload, actor, via, created_at)
select id, tenant_id, consumed_by_job_id, key, payload, actor, via, created_at from perdure.agent_signals where id = :id

-- name: list_agent_signals
select *, consumed_by_job_id is null and expires_at <= perdure.db_now() as expired from perdure.agent_signals
where tenant_id = :tenant_id and agent_id = :agent_id and (:before::uuid is null or id < :before)
  and (not :pending::bool or consumed_by_job_id is null and (expires_at is null or expires_at > perdure.db_now()))
order by id desc limit :limit
