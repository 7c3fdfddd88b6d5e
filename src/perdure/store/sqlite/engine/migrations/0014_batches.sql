-- Batches: the callback of a batch is PENDING, with a wait of kind `child` for all jobs of the batch, and due when that is answered.

-- As in 0003, also for such a job.
drop trigger job_waits_answered;
create trigger job_waits_answered after update of answered_at on job_waits
when old.answered_at is null and new.answered_at is not null
begin
  insert into job_queue (job_id, lane, kind, priority, run_at, deadline, status, tenant_id, concurrency_key, max_concurrent)
    select j.id, j.lane, j.kind, j.priority, min(new.answered_at, (select now from clock)), j.deadline, j.status,
      case when j.concurrency_key is not null then j.tenant_id end, j.concurrency_key, j.max_concurrent from jobs j
    where j.id = new.job_id and (j.status in ('PARKED', 'WAITING_FOR_APPROVAL') or j.status = 'PENDING' and new.kind = 'child')
      and not exists (
      select 1 from job_waits w where w.job_id = new.job_id and w.kind = 'code' and w.answered_at is null)
    on conflict (job_id) do update set run_at = min(job_queue.run_at, excluded.run_at);
end;
