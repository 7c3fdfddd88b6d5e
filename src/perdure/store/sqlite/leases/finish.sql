-- The end of an attempt.

-- name: complete_many
-- Their claims are gone. JSON would be read several times for each row.
with e (id, version, result, ran) as (values :rows(id, version, result, ran))
update jobs set status = 'COMPLETED', prev_status = status, finished_at = :now, updated_at = :now, note = :note,
  version = e.version, result = e.result, ran = e.ran from e where jobs.id = e.id

-- name: drop_claims
-- only: sqlite of many jobs; drop_claim is that of one; ids: JSON array
delete from job_claims where job_id in (select value from json_each(:ids))

-- name: add_run
-- only: sqlite the twin writes it in the statement that ends the attempt
insert into job_incomplete_runs (job_id, attempt, worker_id, started_at, finished_at, outcome, error_message, error_kind)
values :rows(job_id, attempt, worker_id, started_at, :now, outcome, error_message, error_kind)

-- name: retries
-- only: sqlite what the end of a failed attempt depends on
select retry_count, max_retries, lost_starts, suspicion from jobs where id = :job_id

-- name: settle_many
-- Every other end.
update jobs set status = :status, prev_status = status, version = :version, retry_count = :retry_count,
  lost_starts = :lost_starts, suspicion = :suspicion, next_retry_at = :next_retry_at, finished_at = :finished_at, updated_at = :now,
  error_message = :error, error_kind = :error_kind, note = :note
where id = :job_id
