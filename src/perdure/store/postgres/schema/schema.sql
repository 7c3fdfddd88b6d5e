-- The schema: its migrations, its time, its kinds.

-- name: server_version
select current_setting('server_version') as version

-- name: has_schema
-- only: postgres SQLite has no schemas; asking the catalog needs no right on the schema. Other tools keep tables of this name.
select to_regnamespace('perdure') is not null as has_schema, 4 = (select count(*) from pg_attribute where attrelid =
  to_regclass('perdure.schema_migrations') and attname in ('number', 'name', 'checksum', 'applied_at')) as has_migrations

-- name: objects_in_schema
-- What is in the place of the schema: everything that may not share a name with a table.
select relname::text as name from pg_class where relnamespace = to_regnamespace('perdure')
  and relkind in ('r', 'p', 'v', 'm', 'f', 'S', 'c') order by relname

-- name: applied_migrations
select number, name, checksum, applied_at from perdure.schema_migrations order by number

-- name: lock_migrations
-- only: postgres one migrator at a time, until its transaction ends: the first bytes of "perdure" as a number
select pg_advisory_xact_lock(31640396229)

-- name: create_migrations
create table perdure.schema_migrations (number int primary key, name text not null, checksum text not null,
  applied_at timestamptz not null default now())

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

-- name: other_tables
-- only: postgres SQLite's schema_check knows them; known: the tables and views of the schema
select format('%I.%I', n.nspname, c.relname) as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p', 'v', 'm', 'f') and n.nspname <> 'information_schema' and n.nspname !~ '^pg_'
  and not (n.nspname = 'perdure' and c.relname = any(:known::text[]))
  and not exists (select 1 from pg_depend where classid = 'pg_class'::regclass and objid = c.oid and deptype = 'e')
order by 1

-- name: record_migration
insert into perdure.schema_migrations (number, name, checksum) values (:number, :name, :checksum) returning applied_at
