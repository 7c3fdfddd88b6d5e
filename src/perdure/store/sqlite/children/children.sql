-- Jobs that jobs have spawned, and who waits for whom.
-- Where the dialect differs: lists are JSON arrays; a recursive query may have several terms, and has no lateral ones.

-- name: read_children
select c.id, c.kind, c.parent_id, c.status, c.result, c.error_message as error, c.error_kind, c.pruned_at is not null as pruned
from jobs c where c.id in (select value from json_each(:ids)) and c.tenant_id = :tenant_id

-- name: list_children
select id, kind, status from jobs where parent_id = :parent_id and tenant_id = :tenant_id order by id

-- name: waiters
-- What stands above a job: those that wait for it, and its parent. Usually one per level.
with recursive above (id, below) as (
  select :job_id, null
  union
  select w.job_id, a.id from above a join awaited_jobs w on w.child_id = a.id
  union
  select j.parent_id, a.id from above a join jobs j on j.id = a.id where j.parent_id is not null
)
select id, below from above where below is not null limit 10000

-- name: child_tree
with recursive tree (id, depth) as (
  select id, 0 from jobs where id = :job_id and tenant_id = :tenant_id
  union all
  select c.id, t.depth + 1 from tree t join jobs c on c.parent_id = t.id where t.depth < :limit
  order by 2, 1 limit :limit
)
select j.id, j.parent_id, t.depth, j.kind, j.goal, j.status, j.created_at, j.finished_at, j.error_message as error
from tree t join jobs j on j.id = t.id order by t.depth, j.id

-- name: cancelled_parents
select job_id from cancelled_parents where tenant_id = :tenant_id order by job_id limit :limit

-- name: children_to_cancel
select c.id from jobs c where c.parent_id = :parent_id and c.finished_at is null and not exists (
  select 1 from job_claims k where k.job_id = c.id and k.cancel_requested_at is not null)
order by c.id limit :limit

-- name: forget_cancelled
delete from cancelled_parents where job_id = :parent_id and tenant_id = :tenant_id
