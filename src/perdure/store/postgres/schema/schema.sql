-- The schema about itself, time, and sizes.

-- name: notify
-- only: postgres SQLite has no channels. $1 channels, $2 payload
select pg_notify(channel, $2) from unnest($1::text[]) channel

-- name: server_version
select current_setting('server_version') as version

-- name: has_schema
-- only: postgres SQLite has no schemas; asking the catalog needs no right on the schema. Other tools keep tables of this name.
select to_regnamespace('perdure') is not null as has_schema, 4 = (select count(*) from pg_attribute where attrelid =
  to_regclass('perdure.schema_migrations') and attname in ('number', 'name', 'checksum', 'applied_at')) as has_migrations

-- name: strangers
-- Whatever is where ours should be: all that may not share a name with a table.
select relname::text as name from pg_class where relnamespace = to_regnamespace('perdure')
  and relkind in ('r', 'p', 'v', 'm', 'f', 'S', 'c') order by relname

-- name: other_tables
-- only: postgres in a SQLite file they are strangers beside ours. $1 tables and views of ours
select format('%I.%I', n.nspname, c.relname) as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p', 'v', 'm', 'f') and n.nspname <> 'information_schema' and n.nspname !~ '^pg_'
  and not (n.nspname = 'perdure' and c.relname = any($1::text[]))
  and not exists (select 1 from pg_depend where classid = 'pg_class'::regclass and objid = c.oid and deptype = 'e')
order by 1

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

-- name: end_backends
-- only: postgres SQLite has no sessions. $1 process ids; whoever they belong to now, only sessions of ours are ended
select pg_terminate_backend(pid) from pg_stat_activity where pid = any($1::int[]) and pid <> pg_backend_pid()
  and datname = current_database() and usename = current_user and application_name = 'perdure'

-- name: list_kinds
-- A look at the index for each kind, however many jobs there are.
with recursive kinds (kind) as (
  select min(kind) from perdure.jobs
  union all
  select (select min(j.kind) from perdure.jobs j where j.kind > k.kind) from kinds k where k.kind is not null
)
select kind from kinds where kind is not null

-- name: db_now
select perdure.db_now() as now

-- name: table_sizes
-- Rows as the server estimates them, bytes with what is kept beside the rows (TOAST).
select c.relname as name, coalesce(nullif(s.n_live_tup, 0), greatest(c.reltuples, 0)::int8) as rows, s.n_dead_tup as dead,
  pg_table_size(c.oid) as bytes
from pg_class c left join pg_stat_all_tables s on s.relid = c.oid
where c.relnamespace = to_regnamespace('perdure') and c.relkind = 'r'

-- name: index_sizes
select t.relname as tbl_name, i.relname as name, pg_relation_size(i.oid) as bytes
from pg_index x join pg_class i on i.oid = x.indexrelid join pg_class t on t.oid = x.indrelid
where t.relnamespace = to_regnamespace('perdure') and t.relkind = 'r'
