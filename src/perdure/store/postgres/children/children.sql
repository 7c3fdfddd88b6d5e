-- Jobs that jobs have spawned, and who waits for whom.

-- name: read_children
select c.id, c.kind, c.parent_id, c.status::text as status, c.result, c.error_message as error, c.error_kind,
  c.pruned_at is not null as pruned
from perdure.jobs c where c.id = any (:ids::uuid[]) and c.tenant_id = :tenant_id

-- name: list_children
select id, kind, status::text as status from perdure.jobs where parent_id = :parent_id and tenant_id = :tenant_id order by id

-- name: waiters
-- What stands above a job: those that wait for it, and its parent. Usually one per level.
with recursive above (id, below) as (
  select :job_id::uuid, null::uuid
  union
  select n.id, a.id from above a cross join lateral (
    select w.job_id as id from perdure.awaited_jobs w where w.child_id = a.id
    union all
    select j.parent_id from perdure.jobs j where j.id = a.id and j.parent_id is not null) n
)
select id, below from above where below is not null limit 10000

-- name: child_tree
-- The limit outside ends the recursion as soon as it is reached.
with recursive tree (id, depth) as (
  select id, 0 from perdure.jobs where id = :job_id and tenant_id = :tenant_id
  union all
  select c.id, t.depth + 1 from tree t join lateral (
    select id from perdure.jobs where parent_id = t.id order by id limit :limit) c on true
  where t.depth < :limit::int
)
select j.id, j.parent_id, t.depth, j.kind, j.goal, j.status::text as status, j.created_at, j.finished_at, j.error_message as error
from (select id, depth from tree limit :limit) t join perdure.jobs j on j.id = t.id order by t.depth, j.id

-- name: cancelled_parents
select job_id from perdure.cancelled_parents where tenant_id = :tenant_id order by job_id limit :limit

-- name: children_to_cancel
select c.id from perdure.jobs c where c.parent_id = :parent_id and c.finished_at is null and not exists (
  select from perdure.job_claims k where k.job_id = c.id and k.cancel_requested_at is not null)
order by c.id limit :limit

-- name: forget_cancelled
delete from perdure.cancelled_parents where job_id = :parent_id and tenant_id = :tenant_id
