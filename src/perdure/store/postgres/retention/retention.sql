-- Taking finished jobs out of the database. Each statement is given its jobs as an array: with their number known, the planner
-- reaches even the largest table by its key.

-- name: prune_window
-- Where one look ends, so that it is bounded whatever matches: $1 after id, $2 before id, $3 rows. No row: at the end.
select id from perdure.jobs where ($1::uuid is null or id > $1) and ($2::uuid is null or id < $2)
order by id limit 1 offset $3::int - 1

-- name: list_prunable
-- $1 tenant, $2 after id, $3 up to id, $4 before id, $5 statuses, $6 seconds, $7 kinds, $8 queues, $9 heavy, $10 limit
select id, version from perdure.jobs
where ($2::uuid is null or id > $2) and ($3::uuid is null or id <= $3) and ($4::uuid is null or id < $4)
  and tenant_id = $1 and status = any ($5::text[]::perdure.job_status[])
  and finished_at <= perdure.db_now() - $6::float8 * interval '1 second'
  and ($7::text[] is null or kind = any ($7)) and ($8::text[] is null or queue = any ($8))
  and (not $9::bool or pruned_at is null)
order by id limit $10

-- name: prune_pick
-- $1 tenant, $2 ids. What another prune has in hand is left to it.
insert into perdure.prune_batch (job_id)
select id from perdure.jobs where tenant_id = $1 and id = any ($2::uuid[])
  and status in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER') order by id for update skip locked
on conflict (job_id) do update set transaction_id = pg_current_xact_id() returning job_id

-- name: prune_events
delete from perdure.job_events where job_id = any ($1::uuid[])

-- name: prune_runs
delete from perdure.job_runs where job_id = any ($1::uuid[])

-- name: prune_state
delete from perdure.job_state where job_id = any ($1::uuid[])

-- name: prune_approvals
delete from perdure.approvals where job_id = any ($1::uuid[])

-- name: prune_failures
delete from perdure.job_failures where job_id = any ($1::uuid[])

-- name: prune_jobs
delete from perdure.jobs where id = any ($1::uuid[])

-- name: prune_done
delete from perdure.prune_batch where job_id = any ($1::uuid[])

-- name: lighten_jobs
-- The payload and the result go, the record and its log stay: $1 tenant, $2 ids
update perdure.jobs set payload = 'null', result = null, pruned_at = perdure.db_now(), prev_status = status
where id = any (array (select id from perdure.jobs where tenant_id = $1 and id = any ($2::uuid[]) and pruned_at is null
  and status in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER') order by id for update skip locked))
returning id

-- name: lighten_state
update perdure.job_state set checkpoint = null where job_id = any ($1::uuid[]) and checkpoint is not null

-- name: forget_workers
-- $1 tenant, $2 seconds
delete from perdure.workers w where w.tenant_id = $1 and w.heartbeat_at < perdure.db_now() - $2::float8 * interval '1 second'
  and not exists (select 1 from perdure.job_claims k where k.worker_id = w.id) returning w.id

-- name: lead
-- $1 tenant, $2 chore, $3 holder, $4 seconds
insert into perdure.leaders (tenant_id, chore, holder, expires_at)
values ($1, $2, $3, perdure.db_now() + $4::float8 * interval '1 second')
on conflict (tenant_id, chore) do update set holder = excluded.holder, expires_at = excluded.expires_at
where leaders.holder = excluded.holder or leaders.expires_at <= perdure.db_now()
returning holder
