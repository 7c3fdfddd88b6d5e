-- Workers as rows.

-- name: register_worker
insert into perdure.workers (id, tenant_id, host, pid, queues, kinds, concurrency, version, grace, state)
values (:worker_id, :tenant_id, :host, :pid, :queues, :kinds, :concurrency, :version, :grace, :state)
on conflict (id) do update set host = excluded.host, pid = excluded.pid, queues = excluded.queues, kinds = excluded.kinds,
  concurrency = excluded.concurrency, version = excluded.version, grace = excluded.grace, hung = 0, blocked = 0, losses = 0,
  state = excluded.state, command = null,
  started_at = perdure.db_now(), heartbeat_at = perdure.db_now()

-- name: beat_worker
update perdure.workers set heartbeat_at = perdure.db_now(), state = :state, hung = :hung, blocked = :blocked
where id = :worker_id and tenant_id = :tenant_id returning command

-- name: list_workers
select w.*, w.state <> 'STOPPED' and w.heartbeat_at > perdure.db_now() - interval '15 seconds' as alive,
  coalesce(k.held, 0)::int as held, coalesce(k.accounts, '{}')::text as accounts
from perdure.workers w left join (
  select worker_id, sum(n) as held, json_object_agg(account_id, n) filter (where account_id is not null) as accounts
  from (select worker_id, account_id, count(*) as n from perdure.job_claims where expires_at > perdure.db_now() group by 1, 2) c
  group by 1) k
  on k.worker_id = w.id
where w.tenant_id = :tenant_id and (:include_stopped or w.state <> 'STOPPED') order by w.started_at desc, w.id desc

-- name: find_worker
-- The worker of that id, else those whose ids end so.
select id from perdure.workers where tenant_id = :tenant_id and right(id, length(:text)) = :text and state <> 'STOPPED'
order by id = :text desc, id limit 2

-- name: command_worker
update perdure.workers set command = :command where id = :worker_id
