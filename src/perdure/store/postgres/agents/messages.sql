-- Messages: sent, delivered, read. What binds them has the lock of the agent.

-- name: lock_agent
select * from perdure.agent_instances where tenant_id = :tenant_id and id = :agent_id for update

-- name: insert_message
-- Nothing is returned where the id, or the key for this agent, is there already.
insert into perdure.agent_messages (id, tenant_id, to_agent_id, from_agent_id, channel, payload, session_id, due_at, expires_at,
  causation_id, idempotency_key, reply_to, reply_channel)
values (:id, :tenant_id, :to_agent_id, :from_agent_id, :channel, :payload::text::json, :session_id,
  perdure.db_now() + :delay::float8 * interval '1 second', perdure.db_now() + :expires_in::float8 * interval '1 second',
  :causation_id, :idempotency_key, :reply_to, :reply_channel)
on conflict do nothing returning id

-- name: find_message
-- The one of this id, or of this key for this agent.
select id, payload, consumed_by_job_id, refused is null and due_at <= perdure.db_now() as open from perdure.agent_messages
where tenant_id = :tenant_id and (id = :id or to_agent_id = :to_agent_id and idempotency_key = :idempotency_key) limit 1

-- name: get_message
select * from perdure.agent_messages where tenant_id = :tenant_id and id = :id

-- name: drop_deliveries
-- They are looked at now.
delete from perdure.agent_deliveries where tenant_id = :tenant_id and agent_id = :agent_id and at <= perdure.db_now()

-- name: add_delivery
insert into perdure.agent_deliveries (tenant_id, agent_id, at) values (:tenant_id, :agent_id, perdure.db_now())

-- name: expire_messages
update perdure.agent_messages set refused = 'expired' where tenant_id = :tenant_id and to_agent_id = :agent_id
  and consumed_by_job_id is null and refused is null and due_at <= perdure.db_now() and expires_at <= perdure.db_now()

-- name: due_messages
select * from perdure.agent_messages where tenant_id = :tenant_id and to_agent_id = :agent_id
  and consumed_by_job_id is null and refused is null and due_at <= perdure.db_now()
order by due_at, id limit :limit

-- name: agent_is_busy
-- Suspended jobs do not count: they hold no slot.
select exists (select from perdure.agent_jobs a join perdure.jobs j on j.id = a.job_id
  where a.tenant_id = :tenant_id and a.agent_id = :agent_id and j.status not in ('PARKED', 'WAITING_FOR_APPROVAL')) as busy

-- name: consume_messages
update perdure.agent_messages m set consumed_by_job_id = u.job_id, consumed_at = perdure.db_now()
from unnest(:ids::uuid[], :job_ids::uuid[]) u(id, job_id) where m.id = any (array[u.id])

-- name: due_agents
select agent_id from (select agent_id, at from perdure.agent_deliveries
  where tenant_id = :tenant_id and at <= perdure.db_now() order by at limit :limit) d
group by agent_id order by min(at)

-- name: next_delivery
select extract(epoch from least(min(at), '9998-12-31 UTC') - perdure.db_now())::float8 as seconds from perdure.agent_deliveries
where tenant_id = :tenant_id

-- name: list_inbox
select * from perdure.agent_messages where tenant_id = :tenant_id and to_agent_id = :agent_id
  and (:before::uuid is null or id < :before) and (not :pending or consumed_by_job_id is null and refused is null)
order by id desc limit :limit

-- name: list_outbox
select * from perdure.agent_messages where tenant_id = :tenant_id and from_agent_id = :agent_id
  and (:before::uuid is null or id < :before) and (not :pending or consumed_by_job_id is null and refused is null)
order by id desc limit :limit
