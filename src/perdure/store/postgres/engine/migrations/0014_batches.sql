-- Batches: the callback of a batch is PENDING, with a wait of kind `child` for all jobs of the batch, and due when that is answered.

-- As in 0003, also for such a job.
create or replace function perdure.job_waits_answered() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  insert into perdure.job_queue (job_id, lane, kind, priority, run_at, deadline, status, tenant_id, concurrency_key, max_concurrent)
    select j.id, j.lane, j.kind, j.priority, least(new.answered_at, perdure.db_now()), j.deadline, j.status,
      case when j.concurrency_key is not null then j.tenant_id end, j.concurrency_key, j.max_concurrent from perdure.jobs j
    where j.id = new.job_id and (j.status in ('PARKED', 'WAITING_FOR_APPROVAL') or j.status = 'PENDING' and new.kind = 'child')
    and not exists (
      select 1 from perdure.job_waits w where w.job_id = new.job_id and w.kind = 'code' and w.answered_at is null)
    on conflict (job_id) do update set run_at = least(perdure.job_queue.run_at, excluded.run_at);
  return null;
end $$;
