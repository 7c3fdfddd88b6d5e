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
-- Replies have mailboxes of their own.
select * from perdure.agent_messages where tenant_id = :tenant_id and to_agent_id = :agent_id
  and consumed_by_job_id is null and refused is null and due_at <= perdure.db_now() and channel not like 'reply:%'
order by due_at, id limit :limit

-- name: agent_waits
-- The waits of an agent's jobs for messages, the oldest first.
select w.job_id, w.key, w.subject_id, j.session_id from perdure.agent_jobs a
join perdure.jobs j on j.id = a.job_id
join perdure.job_waits w on w.job_id = a.job_id and w.kind = 'message' and w.answered_at is null
  and w.subject_id not like '1:reply:%'
where a.tenant_id = :tenant_id and a.agent_id = :agent_id
order by w.opened_at, w.job_id, length(w.key), w.key

-- name: messages_for_wait
-- What a wait may take: of its channel, if it names one, and of its job's session, if the message has one.
select * from perdure.agent_messages where tenant_id = :tenant_id and to_agent_id = :agent_id
  and consumed_by_job_id is null and refused is null and due_at <= perdure.db_now() and channel not like 'reply:%'
  and (:channel::text is null or channel = :channel)
  and coalesce(session_id, :default_session_id::text, :session_id::text, '') = coalesce(:session_id::text, '')
order by due_at, id limit :limit

-- name: reply_wait
-- The wait for the reply to a message, while it is open.
select w.job_id, w.key from perdure.agent_messages m
join perdure.job_waits w on w.job_id = m.job_id and w.kind = 'message' and w.subject_id = '1:' || :channel and w.answered_at is null
where m.tenant_id = :tenant_id and m.id = :asked

-- name: due_reply
select * from perdure.agent_messages where reply_to = :asked and tenant_id = :tenant_id and channel = :channel
  and consumed_by_job_id is null and refused is null and due_at <= perdure.db_now()
order by id limit 1

-- name: refuse_late
update perdure.agent_messages set refused = 'late' where id = :id and consumed_by_job_id is null

-- name: bind_messages
update perdure.agent_messages set consumed_by_job_id = :job_id, consumed_at = perdure.db_now(), consumed_key = :key
where id = any (:ids::uuid[])

-- name: answer_message_wait
update perdure.job_waits set answered_at = perdure.db_now() where job_id = :job_id and kind = 'message' and key = :key and answered_at is null

-- name: bound_messages
-- What a wait has taken.
select * from perdure.agent_messages where consumed_by_job_id = :job_id and consumed_key = :wait_key and tenant_id = :tenant_id
order by due_at, id

-- name: agent_is_busy
-- Suspended jobs do not count: they hold no slot.
select exists (select from perdure.agent_jobs a join perdure.jobs j on j.id = a.job_id
  where a.tenant_id = :tenant_id and a.agent_id = :agent_id and j.status not in ('PARKED', 'WAITING_FOR_APPROVAL')) as busy

-- name: jobs_to_interrupt
-- Those of a session that have not ended and are not suspended.
select a.job_id from perdure.agent_jobs a join perdure.jobs j on j.id = a.job_id
where a.tenant_id = :tenant_id and a.agent_id = :agent_id and j.status not in ('PARKED', 'WAITING_FOR_APPROVAL')
  and coalesce(j.session_id, '') = coalesce(:session_id::text, '')
order by a.job_id

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
