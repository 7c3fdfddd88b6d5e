-- The schema about itself, time, and pruning.

-- name: db_now
select perdure.db_now() as now

-- name: prune_count
-- $1 tenant, $2 statuses, $3 seconds
select count(*) as n from perdure.jobs where tenant_id = $1 and status::text = any($2)
  and finished_at < perdure.db_now() - $3::float8 * interval '1 second'

-- name: prune_pick
-- $1 tenant, $2 statuses, $3 seconds, $4 limit. By id, which is by age: old rows first.
insert into perdure.prune_batch (job_id)
select id from perdure.jobs where tenant_id = $1 and status::text = any($2)
  and finished_at < perdure.db_now() - $3::float8 * interval '1 second' order by id limit $4 for update skip locked
returning job_id

-- name: prune_events
delete from perdure.job_events e using perdure.prune_batch b where e.job_id = b.job_id

-- name: prune_runs
delete from perdure.job_runs e using perdure.prune_batch b where e.job_id = b.job_id

-- name: prune_state
delete from perdure.job_state e using perdure.prune_batch b where e.job_id = b.job_id

-- name: prune_approvals
delete from perdure.approvals e using perdure.prune_batch b where e.job_id = b.job_id

-- name: prune_failures
delete from perdure.job_failures e using perdure.prune_batch b where e.job_id = b.job_id

-- name: prune_jobs
delete from perdure.jobs e using perdure.prune_batch b where e.id = b.job_id

-- name: prune_done
delete from perdure.prune_batch b where b.transaction_id = pg_current_xact_id()
