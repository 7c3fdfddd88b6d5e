-- Approvals: asked once, decided once.

-- name: insert_approval
insert into perdure.approvals (id, tenant_id, job_id, key, kind, title, payload, payload_digest, requester, assignees,
  on_expiry, on_deny, token_hash, expires_at)
values ($1, $2, $3, $4, $5, $6, $7::text::json, $8, $9, $10, $11, $12, $13, perdure.db_now() + $14::float8 * interval '1 second')
returning expires_at

-- name: approval_of_key
select id from perdure.approvals where job_id = $1 and key = $2

-- name: replace_token
update perdure.approvals set token_hash = $2 where id = $1

-- name: get_approval
select a.*, j.kind as job_kind, j.status::text as job_status from perdure.approvals a join perdure.jobs j on j.id = a.job_id
where a.id = $1 and a.tenant_id = $2

-- name: lock_approval
select *, expires_at <= perdure.db_now() as expired from perdure.approvals where id = $1 and tenant_id = $2 for update

-- name: approval_of_token
select id, job_id from perdure.approvals where token_hash = $1 and tenant_id = $2

-- name: approval_job
-- only: postgres SQLite reads the whole approval, it holds every lock already
select id, job_id from perdure.approvals where id = $1 and tenant_id = $2

-- name: approval_meant
-- The approval of this very id, or the pending ones of this very job: $1 id, $2 tenant
select id, job_id, title from perdure.approvals where id = $1 and tenant_id = $2
union
select id, job_id, title from perdure.approvals where job_id = $1 and status = 'PENDING' and tenant_id = $2
order by id limit 4

-- name: last_asked
-- This very job, and the latest of its approvals, or null: $1 job id, $2 tenant
select id as job_id, (select a.id from perdure.approvals a where a.job_id = j.id order by a.id desc limit 1) as id
from perdure.jobs j where id = $1 and tenant_id = $2

-- name: find_approval
-- $1 last digits, $2 tenant: of an approval, or of a job that has any pending
select id, job_id, title from perdure.approvals where right(replace(id::text, '-', ''), length($1)) = $1 and tenant_id = $2
union
select id, job_id, title from perdure.approvals
where status = 'PENDING' and right(replace(job_id::text, '-', ''), length($1)) = $1 and tenant_id = $2
order by id limit 4

-- name: find_last_asked
-- $1 last digits of a job's id, $2 tenant
select id as job_id, (select a.id from perdure.approvals a where a.job_id = j.id order by a.id desc limit 1) as id
from perdure.jobs j where right(replace(id::text, '-', ''), length($1)) = $1 and tenant_id = $2 limit 2

-- name: list_approvals
-- $1 tenant, $2 before id, $3 statuses, $4 job id, $5 assignee, $6 limit
select a.*, j.kind as job_kind, j.status::text as job_status
from (
  select * from perdure.approvals
  where tenant_id = $1 and ($2::uuid is null or id < $2) and ($3::text[] is null or status = any ($3))
    and ($4::uuid is null or job_id = $4) and ($5::text is null or assignees = '{}' or $5 = any (assignees))
  order by id desc limit $6
) a join perdure.jobs j on j.id = any (array[a.job_id])
order by a.id desc

-- name: settle_approval
-- $1 id, $2 status, $3 by, $4 door, $5 comment, $6 edited payload
update perdure.approvals set status = $2, decided_at = perdure.db_now(), decided_by = $3, decided_door = $4, comment = $5,
  edited = $6::text is not null, decision_payload = $6::text::json where id = $1

-- name: waits_on
-- Whether a job waits for this approval: $1 job id, $2 approval id
select true from perdure.job_waits where job_id = $1 and subject_id = $2::uuid::text

-- name: due_approvals
-- $1 limit, $2 tenant
select id, job_id from perdure.approvals where status = 'PENDING' and expires_at <= perdure.db_now() and tenant_id = $2
order by expires_at limit $1
