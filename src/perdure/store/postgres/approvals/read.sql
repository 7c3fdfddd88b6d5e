-- Approvals as people and programs look at them.

-- name: get_approval
select a.*, j.kind as job_kind, j.status::text as job_status from perdure.approvals a join perdure.jobs j on j.id = a.job_id
where a.id = :approval_id and a.tenant_id = :tenant_id

-- name: approval_meant
-- The approval of this id, or the pending ones of the job of this id.
select id, job_id, title from perdure.approvals where id = :id and tenant_id = :tenant_id
union
select id, job_id, title from perdure.approvals where job_id = :id and status = 'PENDING' and tenant_id = :tenant_id
order by id limit 4

-- name: last_asked
-- The job of this id, and the latest of its approvals, or null.
select id as job_id, (select a.id from perdure.approvals a where a.job_id = j.id order by a.id desc limit 1) as id
from perdure.jobs j where id = :job_id and tenant_id = :tenant_id

-- name: find_approval
-- By the last digits of the id of an approval, or of a job that has any pending.
select id, job_id, title from perdure.approvals
where right(replace(id::text, '-', ''), length(:suffix)) = :suffix and tenant_id = :tenant_id
union
select id, job_id, title from perdure.approvals
where status = 'PENDING' and right(replace(job_id::text, '-', ''), length(:suffix)) = :suffix and tenant_id = :tenant_id
order by id limit 4

-- name: find_last_asked
-- By the last digits of the id of a job.
select id as job_id, (select a.id from perdure.approvals a where a.job_id = j.id order by a.id desc limit 1) as id
from perdure.jobs j where right(replace(id::text, '-', ''), length(:suffix)) = :suffix and tenant_id = :tenant_id limit 2

-- name: list_approvals
-- Filters that are null match any approval.
select a.*, j.kind as job_kind, j.status::text as job_status
from (
  select * from perdure.approvals
  where tenant_id = :tenant_id and (:before::uuid is null or id < :before)
    and (:statuses::text[] is null or status = any (:statuses))
    and (:job_id::uuid is null or job_id = :job_id) and (:assignee::text is null or assignees = '{}' or :assignee = any (assignees))
  order by id desc limit :limit
) a join perdure.jobs j on j.id = any (array[a.job_id])
order by a.id desc
