-- Taking tasks: a claim that needs a slot of an account as well. It begins with the accounts; where none has a free slot, no task is read.
-- Lock order: accounts, then concurrency keys, then queue and job rows, which are skipped where they are locked.

-- name: task_groups
-- Of each kind the accounts that waiting tasks ask for, empty for any: from one to the next one, not through their rows. None of a
-- paused queue.
with recursive groups as (
  select k.kind, (select q.wanted_account from perdure.job_queue q where q.lane = :lane and q.kind = k.kind and not q.held
    and q.wanted_account is not null order by q.wanted_account limit 1) as wanted
  from unnest(:kinds::text[]) k(kind) where not exists (select from perdure.queue_pauses z where z.lane = :lane and z.resumed_at is null)
  union all
  select g.kind, (select q.wanted_account from perdure.job_queue q where q.lane = :lane and q.kind = g.kind and not q.held
    and q.wanted_account > g.wanted order by q.wanted_account limit 1)
  from groups g where g.wanted is not null
)
select kind, wanted, perdure.db_now() as now from groups where wanted is not null

-- name: lock_accounts
-- only: postgres the writer of the twin has the file for itself
-- Until the end of the transaction no other attempt takes a slot of these tools: so that what is counted next stays true.
select id from perdure.accounts where tenant_id = :tenant_id and tool = any (:tools::text[]) order by id for update

-- name: task_fronts
-- The first due tasks of each group, as many as its number says; where other sessions have locked some, those after them. One index
-- range per priority: delayed tasks cost nothing. refused: the account whose credential was refused in the last run.
select x.*, g.wanted, (select case when r.class = 'auth' then r.account_id end from perdure.tool_runs r
  where r.job_id = x.job_id order by r.attempt desc limit 1) as refused
from unnest(:kinds::text[], :wanteds::text[], :numbers::int[]) g(kind, wanted, number) cross join lateral (
  select f.* from generate_series(9, 1, -1) p(priority) cross join lateral (
    select q.job_id, q.kind, q.priority, q.run_at, j.concurrency_key as key
    from perdure.job_queue q join perdure.jobs j on j.id = any (array[q.job_id])
    where q.lane = :lane and q.kind = g.kind and q.wanted_account = g.wanted and not q.held and q.priority = p.priority::smallint
      and q.run_at <= perdure.db_now() and j.tenant_id = :tenant_id and j.kind = any (array[q.kind])
    order by q.run_at, q.job_id limit g.number for update of q, j skip locked) f
  limit g.number) x
order by x.priority desc, x.run_at, x.job_id

-- name: ready_ahead
-- Of each of these places in the order of a claim: how many due jobs of other kinds come before it, up to a limit.
select (select count(*) from (
    select from generate_series(9, c.priority, -1) p(priority) cross join unnest(:kinds::text[]) k(kind) cross join lateral (
      select from perdure.job_queue q where q.lane = :lane and q.kind = k.kind and q.priority = p.priority::smallint and not q.held
        and q.run_at <= case when p.priority = c.priority then c.run_at else perdure.db_now() end limit :limit) x
    limit :limit) a)::int as ahead
from unnest(:priorities::int[], :times::timestamptz[]) with ordinality c(priority, run_at, place) order by c.place

-- name: take_tasks
-- only: postgres SQLite has the statements of its claim for it
-- Columns as those of `claim`, and the account.
with taken as (
  delete from perdure.job_queue where job_id = any (:ids::uuid[]) returning job_id, run_at
), moved as (
  update perdure.jobs j set status = 'RUNNING', prev_status = j.status, version = j.version + 1, attempt = j.attempt + 1,
    next_retry_at = null, started_at = coalesce(j.started_at, perdure.db_now()), updated_at = perdure.db_now(),
    max_retries = coalesce(j.max_retries, greatest(k.max_retries, j.retry_count)), note = :note::json
  from unnest(:ids::uuid[], :accounts::text[]) g(job_id, account) join taken t on t.job_id = g.job_id
  cross join unnest(:kinds::text[], :retries::smallint[]) k(kind, max_retries)
  where j.id = any (array[g.job_id]) and k.kind = j.kind and j.status in ('PENDING', 'RETRY', 'PARKED', 'WAITING_FOR_APPROVAL')
  returning j.id, j.attempt, j.kind, j.payload, j.priority, j.version, t.run_at, g.account,
    json_build_array(j.queue, j.goal, j.retry_count, j.max_retries, j.lost_starts, j.suspicion, j.idempotency_key,
      case when j.deadline is not null then
      (extract(epoch from least(greatest(j.deadline, '0002-01-01 UTC'), '9998-12-31 UTC')) * 1000000)::int8 end, null) as more
), leased as (
  insert into perdure.job_claims (job_id, tenant_id, attempt, version, worker_id, ttl, expires_at, account_id)
  select id, :tenant_id, attempt, version, :worker_id, :ttl::interval, perdure.db_now() + :ttl::interval, account from moved
)
select m.id, m.attempt, m.kind, m.payload, m.priority, m.version, m.more,
  extract(epoch from perdure.db_now() - greatest(m.run_at, '0002-01-01 UTC'))::float8 as waited,
  (extract(epoch from perdure.db_now()) * 1000000)::int8 as claimed_at
from moved m order by m.priority desc, m.run_at, m.id

-- name: next_task_due
-- Seconds until a task of these kinds becomes due, or the first account of their tools is no longer parked.
select extract(epoch from min(least(x.at, '9998-12-31 UTC')) - perdure.db_now())::float8 as seconds from (
  select f.run_at as at
  from unnest(:lanes::text[]) l(lane) cross join unnest(:kinds::text[]) k(kind) cross join generate_series(1, 9) p(priority)
  cross join lateral (
    select q.run_at from perdure.job_queue q where q.lane = l.lane and q.kind = k.kind and q.priority = p.priority::smallint
      and not q.held and q.run_at > perdure.db_now()
    order by q.run_at limit 1) f
  union all
  select a.parked_until from perdure.accounts a
  where a.tenant_id = :tenant_id and a.tool = any (:tools::text[]) and a.enabled and a.parked_until > perdure.db_now()
) x
