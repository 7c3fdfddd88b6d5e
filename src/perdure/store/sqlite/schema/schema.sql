-- The schema about itself and time.

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

-- name: objects_in_schema
-- What is in the file.
select type as kind, name from sqlite_master where substr(name, 1, 7) <> 'sqlite_' order by name

-- name: applied_migrations
select number, name, checksum, applied_at from schema_migrations order by number

-- name: record_migration
insert into schema_migrations (number, name, checksum, applied_at) values (:number, :name, :checksum, :now)

-- name: list_kinds
-- A look at the index for each kind, however many jobs there are.
with recursive kinds (kind) as (
  select min(kind) from jobs
  union all
  select (select min(j.kind) from jobs j where j.kind > k.kind) from kinds k where k.kind is not null
)
select kind from kinds where kind is not null

-- name: has_contents
-- only: sqlite pg_dump copies the other
select 1 from sqlite_master where type = 'table' and name = 'file_contents'

-- name: all_blobs
-- only: sqlite as above
-- What a backup copies besides the database.
select tenant_id, hash from file_contents where content is null
