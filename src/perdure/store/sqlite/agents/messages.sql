-- Messages: sent, delivered, read. Where the dialect differs: no row locks, because a transaction of the writer has the file for
-- itself.

-- name: lock_agent
select * from agent_instances where tenant_id = :tenant_id and id = :agent_id

-- name: insert_message
-- Nothing is returned where the id, or the key for this agent, is there already.
insert into agent_messages (id, tenant_id, to_agent_id, from_agent_id, channel, payload, session_id, created_at, due_at, expires_at,
  causation_id, idempotency_key, reply_to, reply_channel)
values (:id, :tenant_id, :to_agent_id, :from_agent_id, :channel, :payload, :session_id, :now,
  :now + cast(:delay * 1000000 as integer), :now + cast(:expires_in * 1000000 as integer),
  :causation_id, :idempotency_key, :reply_to, :reply_channel)
on conflict do nothing returning id

-- name: find_message
-- The one of this id, or of this key for this agent.
select id, payload, consumed_by_job_id, refused is null and due_at <= :now as open from agent_messages
where tenant_id = :tenant_id and (id = :id or to_agent_id = :to_agent_id and idempotency_key = :idempotency_key) limit 1

-- name: get_message
select * from agent_messages where tenant_id = :tenant_id and id = :id

-- name: drop_deliveries
-- They are looked at now.
delete from agent_deliveries where tenant_id = :tenant_id and agent_id = :agent_id and at <= :now

-- name: add_delivery
insert into agent_deliveries (tenant_id, agent_id, at) values (:tenant_id, :agent_id, :now) on conflict do nothing

-- name: expire_messages
update agent_messages set refused = 'expired' where tenant_id = :tenant_id and to_agent_id = :agent_id
  and consumed_by_job_id is null and refused is null and due_at <= :now and expires_at <= :now

-- name: due_messages
select * from agent_messages where tenant_id = :tenant_id and to_agent_id = :agent_id
  and consumed_by_job_id is null and refused is null and due_at <= :now
order by due_at, id limit :limit

-- name: agent_is_busy
-- Suspended jobs do not count: they hold no slot.
select exists (select 1 from agent_jobs a join jobs j on j.id = a.job_id
  where a.tenant_id = :tenant_id and a.agent_id = :agent_id and j.status not in ('PARKED', 'WAITING_FOR_APPROVAL')) as busy

-- name: consume_messages
update agent_messages set consumed_by_job_id = :job_id, consumed_at = :now where id = :id

-- name: due_agents
select agent_id from (select agent_id, at from agent_deliveries
  where tenant_id = :tenant_id and at <= (select now from clock) order by at limit :limit)
group by agent_id order by min(at)

-- name: next_delivery
select (min(at) - (select now from clock)) / 1000000.0 as seconds from agent_deliveries where tenant_id = :tenant_id

-- name: list_inbox
select * from agent_messages where tenant_id = :tenant_id and to_agent_id = :agent_id
  and (:before is null or id < :before) and (not :pending or consumed_by_job_id is null and refused is null)
order by id desc limit :limit

-- name: list_outbox
select * from agent_messages where tenant_id = :tenant_id and from_agent_id = :agent_id
  and (:before is null or id < :before) and (not :pending or consumed_by_job_id is null and refused is null)
order by id desc limit :limit
