-- The schema about itself, time, and sizes.

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
-- only: sqlite an empty file has no table to ask. Other tools keep tables of this name.
select 1 from sqlite_master where type = 'table' and name = 'schema_migrations' and 4 =
  (select count(*) from pragma_table_info('schema_migrations') where name in ('number', 'name', 'checksum', 'applied_at'))

-- name: strangers
-- Whatever is where ours should be.
select type as kind, name from sqlite_master where substr(name, 1, 7) <> 'sqlite_' order by name

-- name: applied_migrations
select number, name, checksum, applied_at from schema_migrations order by number

-- name: record_migration
insert into schema_migrations (number, name, checksum, applied_at) values (:number, :name, :checksum, :now)

-- name: table_sizes
-- Rows, counted up to a bound: to count a large table is to read it.
select 'jobs' as name, (select count(*) from (select 1 from jobs limit :bound)) as rows
union all select 'job_events' as name, (select count(*) from (select 1 from job_events limit :bound)) as rows
union all select 'job_queue' as name, (select count(*) from (select 1 from job_queue limit :bound)) as rows
union all select 'job_claims' as name, (select count(*) from (select 1 from job_claims limit :bound)) as rows
union all select 'job_waits' as name, (select count(*) from (select 1 from job_waits limit :bound)) as rows
union all select 'job_state' as name, (select count(*) from (select 1 from job_state limit :bound)) as rows
union all select 'job_runs' as name, (select count(*) from (select 1 from job_runs limit :bound)) as rows
union all select 'job_failures' as name, (select count(*) from (select 1 from job_failures limit :bound)) as rows
union all select 'approvals' as name, (select count(*) from (select 1 from approvals limit :bound)) as rows
union all select 'workers' as name, (select count(*) from (select 1 from workers limit :bound)) as rows
union all select 'leaders' as name, (select count(*) from (select 1 from leaders limit :bound)) as rows
union all select 'prune_batch' as name, (select count(*) from (select 1 from prune_batch limit :bound)) as rows
union all select 'schema_migrations' as name, (select count(*) from (select 1 from schema_migrations limit :bound)) as rows

-- name: list_kinds
-- A look at the index for each kind, however many jobs there are.
with recursive kinds (kind) as (
  select min(kind) from jobs
  union all
  select (select min(j.kind) from jobs j where j.kind > k.kind) from kinds k where k.kind is not null
)
select kind from kinds where kind is not null


-- name: index_sizes
select name, tbl_name from sqlite_master where type = 'index'

-- name: file_sizes
-- only: sqlite the database is a file
select page_count * page_size as total, freelist_count * page_size as free
from pragma_page_count, pragma_page_size, pragma_freelist_count

-- name: object_sizes
-- only: sqlite bytes of each table and index, where SQLite was built with dbstat; it visits every page of the file
select name, pgsize from dbstat where aggregate = true
