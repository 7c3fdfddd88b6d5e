-- name: settings_arrived
-- only: postgres SQLite has no sessions
-- An error where a setting that was sent at the start is not in force: something between keeps it to itself.
select 1 operator(pg_catalog./) (pg_catalog.current_setting('plan_cache_mode') operator(pg_catalog.=) 'force_custom_plan')::int

-- name: end_fence_holders
-- only: postgres as above
-- Who holds the advisory lock of a lost connection; ends: also end them.
select pid, case when :ends then pg_terminate_backend(pid) end as ended from pg_locks
where locktype = 'advisory' and objsubid = 1 and database = (select oid from pg_database where datname = current_database())
  and (classid::int8 << 32 | objid::int8) = :fence::int8
