-- name: may_vacuum
-- only: postgres see vacuum. What it would skip it says so in the server's log, each time: so it is asked for before.
select (select bool_and(pg_has_role(relowner, 'usage')) from pg_class
    where oid in ('perdure.job_queue'::regclass, 'perdure.job_claims'::regclass)) as owned,
  exists (select 1 from pg_locks where mode = 'ShareUpdateExclusiveLock'
    and database = (select oid from pg_database where datname = current_database())
    and relation in ('perdure.job_queue'::regclass, 'perdure.job_claims'::regclass)) as busy

-- name: vacuum
-- only: postgres SQLite leaves no dead rows
-- One at a time is enough, and shortening a table would wait for every session that uses it.
vacuum (skip_locked, truncate off) perdure.job_queue, perdure.job_claims
