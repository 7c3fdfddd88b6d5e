-- What jobs of agents save for the next job of their session. What writes holds the claim of the job.

-- name: read_state
select agent_id, session_id, state, version, updated_at, job_id from perdure.agent_states
where tenant_id = :tenant_id and agent_id = :agent_id and session_id = :session_id

-- name: lock_state
select version, job_id, save_key from perdure.agent_states
where tenant_id = :tenant_id and agent_id = :agent_id and session_id = :session_id for update

-- name: insert_state
insert into perdure.agent_states (tenant_id, agent_id, session_id, version, state, job_id, save_key, updated_at)
values (:tenant_id, :agent_id, :session_id, 1, :state::text::json, :job_id, :key, perdure.db_now())
on conflict do nothing returning version

-- name: change_state
update perdure.agent_states set version = version + 1, state = :state::text::json, job_id = :job_id, save_key = :key, updated_at = perdure.db_now()
where tenant_id = :tenant_id and agent_id = :agent_id and session_id = :session_id

-- name: list_states
-- after: the session that a page ended with; null: the first page.
select agent_id, session_id, state, version, updated_at, job_id from perdure.agent_states
where tenant_id = :tenant_id and agent_id = :agent_id and (:after::text is null or session_id > :after)
order by session_id limit :limit
