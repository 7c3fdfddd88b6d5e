-- What the catalog says about the schema.

-- name: schema_objects
-- only: postgres SQLite keeps the text of its schema, and compares that
-- Without the constraints `not null`, which PostgreSQL 18 lists and earlier ones do not, and the indexes of constraints.
select 'table' as kind, c.relname::text as name, null::text as place, true as works, null::text as body
from pg_class c where c.relnamespace = to_regnamespace('perdure') and c.relkind in ('r', 'p')
union all
select 'view', c.relname, null, true, null
from pg_class c where c.relnamespace = to_regnamespace('perdure') and c.relkind = 'v'
union all
select 'index', i.relname, c.relname, x.indisvalid, null
from pg_index x join pg_class i on i.oid = x.indexrelid join pg_class c on c.oid = x.indrelid
where i.relnamespace = to_regnamespace('perdure') and not exists (select from pg_constraint k where k.conindid = i.oid)
union all
select 'constraint', k.conname, c.relname, k.convalidated, null
from pg_constraint k join pg_class c on c.oid = k.conrelid where k.connamespace = to_regnamespace('perdure')
  and k.contype <> 'n'
union all
select 'trigger', t.tgname, c.relname, t.tgenabled in ('O', 'A'), p.proname
from pg_trigger t join pg_class c on c.oid = t.tgrelid join pg_proc p on p.oid = t.tgfoid
where not t.tgisinternal and c.relnamespace = to_regnamespace('perdure')
union all
select 'function', p.proname, null, true, p.prosrc from pg_proc p where p.pronamespace = to_regnamespace('perdure')
union all
select 'rule', r.rulename, c.relname, true, null from pg_rewrite r join pg_class c on c.oid = r.ev_class
where c.relnamespace = to_regnamespace('perdure') and c.relkind in ('r', 'p')
union all
select 'row-level security', c.relname, null, false, null from pg_class c
where c.relnamespace = to_regnamespace('perdure') and c.relkind in ('r', 'p') and (c.relforcerowsecurity or row_security_active(c.oid))
union all
select 'type', t.typname, null, true, null from pg_type t where t.typnamespace = to_regnamespace('perdure') and t.typtype = 'e'

-- name: triggers_fire
-- only: postgres a setting of a session, a role or a whole database may switch them off
select current_setting('session_replication_role') <> 'replica' as fire
