-- The schema about itself, time, and pruning.
-- Where the dialect differs: prune_batch needs no transaction id, because there is one writer and it empties the table.

-- name: db_now
select now from clock

-- name: create_migrations
create table if not exists schema_migrations (
  number integer primary key,
  name text not null,
  checksum text not null,
  applied_at integer not null
) strict

-- name: server_version
select sqlite_version() as version

-- name: has_migrations
-- only: sqlite an empty file has no table to ask
select 1 from sqlite_master where type = 'table' and name = 'schema_migrations'

-- name: applied_migrations
select number, name, checksum, applied_at from schema_migrations order by number

-- name: record_migration
insert into schema_migrations (number, name, checksum, applied_at) values (?, ?, ?, ?)

-- name: prune_count
-- before: microseconds
select count(*) as n from jobs where tenant_id = :tenant and status in (select value from json_each(:statuses))
  and finished_at < :before

-- name: prune_pick
-- By id, which is by age: old rows first.
insert into prune_batch (job_id)
select id from jobs where tenant_id = :tenant and status in (select value from json_each(:statuses))
  and finished_at < :before order by id limit :limit

-- name: prune_events
delete from job_events where job_id in (select job_id from prune_batch)

-- name: prune_runs
delete from job_runs where job_id in (select job_id from prune_batch)

-- name: prune_state
delete from job_state where job_id in (select job_id from prune_batch)

-- name: prune_approvals
delete from approvals where job_id in (select job_id from prune_batch)

-- name: prune_failures
delete from job_failures where job_id in (select job_id from prune_batch)

-- name: prune_jobs
delete from jobs where id in (select job_id from prune_batch)

-- name: prune_done
delete from prune_batch
