-- Workers as rows. Where the dialect differs: lists are JSON arrays, time is a parameter or the clock view.

-- name: register_worker
insert into workers (id, tenant_id, host, pid, queues, kinds, concurrency, version, grace, state, started_at, heartbeat_at)
values (:id, :tenant_id, :host, :pid, :queues, :kinds, :concurrency, :version, :grace, :state, :now, :now)
on conflict (id) do update set host = excluded.host, pid = excluded.pid, queues = excluded.queues, kinds = excluded.kinds,
  concurrency = excluded.concurrency, version = excluded.version, grace = excluded.grace, hung = 0, blocked = 0, losses = 0,
  state = excluded.state, command = null,
  started_at = excluded.started_at,
  heartbeat_at = excluded.heartbeat_at

-- name: beat_worker
update workers set heartbeat_at = :now, state = :state, hung = :hung, blocked = :blocked where id = :worker_id and tenant_id = :tenant_id returning command

-- name: list_workers
select w.*, w.state <> 'STOPPED' and w.heartbeat_at > (select now from clock) - 15000000 as alive,
  coalesce(k.held, 0) as held, coalesce(k.accounts, '{}') as accounts
from workers w left join (
  select worker_id, sum(n) as held, json_group_object(account_id, n) filter (where account_id is not null) as accounts
  from (select worker_id, account_id, count(*) as n from job_claims where expires_at > (select now from clock) group by 1, 2)
  group by 1) k
  on k.worker_id = w.id
where w.tenant_id = :tenant_id and (:include_stopped or w.state <> 'STOPPED') order by w.started_at desc, w.id desc

-- name: find_worker
-- The worker of that very id, else those whose ids end so.
select id from workers where tenant_id = :tenant_id and substr(id, -length(:text)) = :text and state <> 'STOPPED'
order by id = :text desc, id limit 2

-- name: command_worker
update workers set command = :command where id = :worker_id
