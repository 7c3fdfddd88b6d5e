-- Reading approvals, and finding one by an id or its end.

-- name: get_approval
select a.*, j.kind as job_kind, j.status as job_status from approvals a join jobs j on j.id = a.job_id
where a.id = :approval_id and a.tenant_id = :tenant_id

-- name: approval_meant
-- The approval of this very id, or the pending ones of this very job.
select id, job_id, title from approvals where id = :id and tenant_id = :tenant_id
union
select id, job_id, title from approvals where job_id = :id and status = 'PENDING' and tenant_id = :tenant_id
order by id limit 4

-- name: last_asked
-- This very job, and the latest of its approvals, or null.
select id as job_id, (select a.id from approvals a where a.job_id = j.id order by a.id desc limit 1) as id
from jobs j where id = :id and tenant_id = :tenant_id

-- name: find_approval
-- The last digits of an approval's id, or of a job's that has any pending.
select id, job_id, title from approvals where substr(replace(id, '-', ''), -length(:suffix)) = :suffix and tenant_id = :tenant_id
union
select id, job_id, title from approvals
where status = 'PENDING' and substr(replace(job_id, '-', ''), -length(:suffix)) = :suffix and tenant_id = :tenant_id
order by id limit 4

-- name: find_last_asked
-- The last digits of a job's id; the inner query reads an index of the ids only.
select id as job_id, (select a.id from approvals a where a.job_id = j.id order by a.id desc limit 1) as id
from jobs j where id in (select id from jobs where substr(replace(id, '-', ''), -length(:suffix)) = :suffix)
  and tenant_id = :tenant_id limit 2

-- name: list_approvals
select a.*, j.kind as job_kind, j.status as job_status from approvals a join jobs j on j.id = a.job_id
where a.tenant_id = :tenant_id and a.id < coalesce(:before, 'g')
  and (:statuses is null or a.status in (select value from json_each(:statuses)))
  and (:job_id is null or a.job_id = :job_id)
  and (:assignee is null or a.assignees = '[]' or exists (select 1 from json_each(a.assignees) where value = :assignee))
order by a.id desc limit :limit
