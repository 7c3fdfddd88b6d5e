-- name: this_backend
-- only: postgres SQLite has no sessions
select pid, backend_start from pg_stat_activity where pid = pg_backend_pid()

-- name: end_backend
-- only: postgres as above
select pg_terminate_backend(pid) from pg_stat_activity where pid = :pid and backend_start = :started
