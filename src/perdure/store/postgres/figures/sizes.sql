-- How much space tables and indexes take.

-- name: table_sizes
-- Rows as the server estimates them, bytes with what is stored outside of the rows (TOAST).
select c.relname as name, coalesce(nullif(s.n_live_tup, 0), greatest(c.reltuples, 0)::int8) as rows, s.n_dead_tup as dead,
  pg_table_size(c.oid) as bytes
from pg_class c left join pg_stat_all_tables s on s.relid = c.oid
where c.relnamespace = to_regnamespace('perdure') and c.relkind = 'r'

-- name: index_sizes
select t.relname as tbl_name, i.relname as name, pg_relation_size(i.oid) as bytes
from pg_index x join pg_class i on i.oid = x.indexrelid join pg_class t on t.oid = x.indrelid
where t.relnamespace = to_regnamespace('perdure') and t.relkind = 'r'
