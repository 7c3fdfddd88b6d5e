-- Taking tasks: a claim that needs a slot of an account as well. Where the dialect differs: a transaction of the writer has the file for
-- itself, so it looks without locks; taking is three short statements.

-- name: task_groups
-- kinds: JSON array. Of each the accounts that waiting tasks ask for, empty for any: from one to the next one, not through their rows.
-- None of a paused queue.
with recursive groups (kind, wanted) as (
  select k.value, (select min(q.wanted_account) from job_queue q where q.lane = :lane and q.kind = k.value and q.held = 0
    and q.wanted_account is not null)
  from json_each(:kinds) k where not exists (select 1 from queue_pauses z where z.lane = :lane and z.resumed_at is null)
  union all
  select g.kind, (select min(q.wanted_account) from job_queue q where q.lane = :lane and q.kind = g.kind and q.held = 0
    and q.wanted_account > g.wanted)
  from groups g where g.wanted is not null
)
select kind, wanted, (select now from clock) as now from groups where wanted is not null

-- name: task_fronts
-- The first due tasks of a group; one index range for each priority: delayed tasks cost nothing. refused: the account whose credential
-- was refused in the last run.
select q.job_id, q.kind, q.priority, q.run_at, j.concurrency_key as key, q.wanted_account as wanted,
  (select case when r.class = 'auth' then r.account_id end from tool_runs r where r.job_id = q.job_id
    order by r.attempt desc limit 1) as refused
from json_each('[9, 8, 7, 6, 5, 4, 3, 2, 1]') p cross join job_queue q indexed by job_queue_accounts cross join jobs j on j.id = q.job_id
where q.lane = :lane and q.kind = :kind and q.wanted_account = :wanted and q.wanted_account is not null and q.held = 0
  and q.priority = p.value and q.run_at <= :now and j.tenant_id = :tenant_id and j.kind = q.kind
limit :limit

-- name: ready_ahead
-- Before this place in the order of a claim: how many due jobs of other kinds (a JSON array) there are, up to a limit.
select count(*) as ahead from (
  select 1 from json_each('[9, 8, 7, 6, 5, 4, 3, 2, 1]') p cross join json_each(:kinds) k cross join job_queue q
  where p.value >= :priority and q.lane = :lane and q.kind = k.value and q.priority = p.value and q.held = 0
    and q.run_at <= iif(p.value = :priority, :run_at, :now)
  limit :limit)

-- name: give_accounts
-- only: sqlite the twin says it in the statement that takes them; accounts: JSON object by job
update job_claims set account_id = e.value from json_each(:accounts) e where job_claims.job_id = e.key

-- name: next_task_due
-- Microseconds until a task of these kinds becomes due, or the first account of their tools is no longer parked. JSON arrays.
select min(at) - (select now from clock) as left from (
  select min(q.run_at) as at from json_each(:lanes) l cross join json_each(:kinds) k cross join json_each('[1, 2, 3, 4, 5, 6, 7, 8, 9]') p
  cross join job_queue q
  where q.lane = l.value and q.kind = k.value and q.priority = p.value and q.held = 0 and q.run_at > (select now from clock)
  union all
  select min(a.parked_until) from accounts a where a.tenant_id = :tenant_id and a.tool in (select value from json_each(:tools))
    and a.enabled and a.parked_until > (select now from clock))
