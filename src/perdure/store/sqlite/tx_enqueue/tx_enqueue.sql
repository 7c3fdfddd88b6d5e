-- Enqueueing on a connection that belongs to the caller: with the statements of jobs/enqueue.sql, after these.

-- name: this_database
pragma database_list

-- name: lock_database
-- only: sqlite it takes the write lock. The first statement that a transaction runs must be a write: one that has read before may
-- fail at once with "database is locked", because another connection has written meanwhile.
delete from main.prune_batch where false

-- name: caller_now
-- only: sqlite the twin's statements read the time themselves
select now || '' from main.clock

-- name: rows_changed
-- only: sqlite the twin's insert returns the ids
select changes()

-- name: begin_logs
-- An event that the log of a job begins with, after the one that it was enqueued. The head follows.
insert into main.job_events (job_id, version, created_at, attempt, type, payload) values (:job_id, :version, :now, 0, :type, :payload)

-- name: joined_head
-- only: sqlite the twin's function does both
update main.jobs set version = :version, prev_status = status, updated_at = :now where id = :job_id
