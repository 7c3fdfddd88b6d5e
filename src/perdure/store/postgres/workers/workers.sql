-- Workers as rows.

-- name: register_worker
insert into perdure.workers (id, tenant_id, host, pid, queues, kinds, concurrency, state)
values ($1, $2, $3, $4, $5, $6, $7, $8)
on conflict (id) do update set host = excluded.host, pid = excluded.pid, queues = excluded.queues, kinds = excluded.kinds,
  concurrency = excluded.concurrency, state = excluded.state, command = null, started_at = perdure.db_now(),
  heartbeat_at = perdure.db_now()

-- name: beat_worker
-- $1 id, $2 state, $3 tenant
update perdure.workers set heartbeat_at = perdure.db_now(), state = $2 where id = $1 and tenant_id = $3 returning command

-- name: list_workers
-- $1 tenant, $2 include stopped
select w.*, w.state <> 'STOPPED' and w.heartbeat_at > perdure.db_now() - interval '15 seconds' as alive,
  coalesce(k.held, 0) as held
from perdure.workers w left join (
  select worker_id, count(*) as held from perdure.job_claims where expires_at > perdure.db_now() group by 1) k
  on k.worker_id = w.id
where w.tenant_id = $1 and ($2 or w.state <> 'STOPPED') order by w.started_at desc, w.id desc

-- name: find_worker
-- $1 id or its end, $2 tenant: the worker of that very id, else those whose ids end so
select id from perdure.workers where tenant_id = $2 and right(id, length($1)) = $1 and state <> 'STOPPED'
order by id = $1 desc, id limit 2

-- name: command_worker
update perdure.workers set command = $2 where id = $1
