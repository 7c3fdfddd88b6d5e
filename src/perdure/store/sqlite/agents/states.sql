-- What jobs of agents save for the next job of their session. Where the dialect differs: no row locks.

-- name: read_state
select agent_id, session_id, state, version, updated_at, job_id from agent_states
where tenant_id = :tenant_id and agent_id = :agent_id and session_id = :session_id

-- name: lock_state
select version, job_id, save_key from agent_states
where tenant_id = :tenant_id and agent_id = :agent_id and session_id = :session_id

-- name: insert_state
insert into agent_states (tenant_id, agent_id, session_id, version, state, job_id, save_key, updated_at)
values (:tenant_id, :agent_id, :session_id, 1, :state, :job_id, :key, :now)
on conflict do nothing returning version

-- name: change_state
update agent_states set version = version + 1, state = :state, job_id = :job_id, save_key = :key, updated_at = :now
where tenant_id = :tenant_id and agent_id = :agent_id and session_id = :session_id

-- name: list_states
-- after: the session that a page ended with; null: the first page.
select agent_id, session_id, state, version, updated_at, job_id from agent_states
where tenant_id = :tenant_id and agent_id = :agent_id and (:after is null or session_id > :after)
order by session_id limit :limit
