-- The schema about itself, time, and pruning.

-- name: notify
-- only: postgres SQLite has no channels. $1 channels, $2 payload
select pg_notify(channel, $2) from unnest($1::text[]) channel

-- name: server_version
select current_setting('server_version') as version

-- name: has_schema
-- only: postgres SQLite has no schemas; asking to_regclass needs no right on the schema
select to_regclass('perdure.schema_migrations') is not null as has_migrations, to_regnamespace('perdure') is not null as has_schema

-- name: applied_migrations
select number, name, checksum, applied_at from perdure.schema_migrations order by number

-- name: lock_migrations
-- only: postgres one migrator at a time: the first bytes of "perdure" as a number
select pg_advisory_lock(31640396229)

-- name: create_migrations
create table perdure.schema_migrations (number int primary key, name text not null, checksum text not null,
  applied_at timestamptz not null default now())

-- name: record_migration
insert into perdure.schema_migrations (number, name, checksum) values ($1, $2, $3) returning applied_at

-- name: db_now
select perdure.db_now() as now

-- name: prune_count
-- $1 tenant, $2 statuses, $3 seconds
select count(*) as n from perdure.jobs where tenant_id = $1 and status = any($2::text[]::perdure.job_status[])
  and finished_at < perdure.db_now() - $3::float8 * interval '1 second'

-- name: prune_pick
-- $1 tenant, $2 statuses, $3 seconds, $4 limit. By id, which is by age: old rows first.
insert into perdure.prune_batch (job_id)
select id from perdure.jobs where tenant_id = $1 and status = any($2::text[]::perdure.job_status[])
  and finished_at < perdure.db_now() - $3::float8 * interval '1 second' order by id limit $4 for update skip locked
on conflict (job_id) do update set transaction_id = pg_current_xact_id() returning job_id

-- name: prune_events
delete from perdure.job_events e using perdure.prune_batch b where e.job_id = b.job_id and b.transaction_id = pg_current_xact_id()

-- name: prune_runs
delete from perdure.job_runs e using perdure.prune_batch b where e.job_id = b.job_id and b.transaction_id = pg_current_xact_id()

-- name: prune_state
delete from perdure.job_state e using perdure.prune_batch b where e.job_id = b.job_id and b.transaction_id = pg_current_xact_id()

-- name: prune_approvals
delete from perdure.approvals e using perdure.prune_batch b where e.job_id = b.job_id and b.transaction_id = pg_current_xact_id()

-- name: prune_failures
delete from perdure.job_failures e using perdure.prune_batch b where e.job_id = b.job_id and b.transaction_id = pg_current_xact_id()

-- name: prune_jobs
delete from perdure.jobs e using perdure.prune_batch b where e.id = b.job_id and b.transaction_id = pg_current_xact_id()

-- name: prune_done
delete from perdure.prune_batch b where b.transaction_id = pg_current_xact_id()
