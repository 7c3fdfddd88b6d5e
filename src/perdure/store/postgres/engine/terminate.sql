-- name: end_backends
-- only: postgres SQLite has no sessions. only sessions of perdure are ended, whatever these ids name now
select pg_terminate_backend(pid) from pg_stat_activity where pid = any(:pids::int[]) and pid <> pg_backend_pid()
  and datname = current_database() and usename = current_user and application_name = 'perdure'
