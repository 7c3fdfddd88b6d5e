-- Reruns are found by the job that they were made from.

create index jobs_rerun on jobs (origin_id, id) where origin_kind = 'rerun';

-- As in 0003; the rerun of a dead job takes its idempotency key over, and nothing else of the old one changes.
drop trigger jobs_touched;
create trigger jobs_touched after update of queue, lane, priority, retry_count, max_retries, lost_starts, run_at, next_retry_at, deadline,
  started_at, finished_at, ran, pruned_at, idempotency_key, origin_id, origin_kind, error_kind, goal, note, error_message, result,
  concurrency_key, max_concurrent on jobs
when new.version = old.version and new.status = old.status and old.updated_at <> 0
  and not (old.finished_at is not null and old.idempotency_key is not null and new.idempotency_key is null)
begin
  select raise(abort, 'the result of a job that has ended cannot be rewritten')
    where old.finished_at is not null and new.result is not old.result and new.pruned_at is old.pruned_at;
  update jobs set updated_at = (select now from clock) where id = new.id and new.pruned_at is old.pruned_at
    and new.updated_at = old.updated_at and updated_at <> (select now from clock);
end;
