-- Workers as rows.

-- name: register_worker
insert into perdure.workers (id, tenant_id, host, pid, queues, kinds, concurrency) values ($1, $2, $3, $4, $5, $6, $7)
on conflict (id) do update set heartbeat_at = perdure.db_now(), state = 'RUNNING', command = null

-- name: beat_worker
update perdure.workers set heartbeat_at = perdure.db_now(), state = $2 where id = $1 returning command

-- name: list_workers
-- $1 tenant, $2 include stopped
select w.*, w.state <> 'STOPPED' and w.heartbeat_at > perdure.db_now() - interval '15 seconds' as alive,
  (select count(*) from perdure.job_claims k where k.worker_id = w.id and k.expires_at > perdure.db_now()) as held
from perdure.workers w where w.tenant_id = $1 and ($2 or w.state <> 'STOPPED') order by w.started_at desc, w.id

-- name: find_worker
select id from perdure.workers where tenant_id = $2 and (id = $1 or (length($1) >= 6 and right(id, length($1)) = $1)) and state <> 'STOPPED' limit 2

-- name: command_worker
update perdure.workers set command = $2 where id = $1
