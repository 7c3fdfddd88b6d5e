-- Taking jobs. The claim starts from the queue, so it locks queue and job rows together and skips what is locked; everything else
-- locks job_claims, then jobs, then approvals and waits, then job_queue; each by id. For `any (array[x])` see record.sql; it holds for kinds
-- as well: with `j.kind = q.kind` a claim planned on empty tables joins all jobs of a kind with all its queue rows.

-- name: claim
-- retries: the max_retries of each kind, for jobs whose callers left that to the handler; from here on it stays. only_job: null for
-- any. One index range per kind and priority: neither 100k delayed jobs at priority 9 nor 100k jobs of kinds that
-- are not asked for cost anything. Where jobs of one kind wait, they are locked as they are read, up to the limit. Where jobs of
-- several do, `shares` first counts how many of each are among the first, without locks. Of a paused queue nothing is read. What most jobs leave as it is
-- comes in `more`, null where it is as usual. Jobs with a concurrency key, their own or that of their handler (keys, by kind), are only
-- found: they come last, without an attempt, and claim_limited takes them or holds them. Times are microseconds since 1970: a time costs the driver as much as all the rest.
-- There is no `on conflict` for the lease: it would double what the insert writes. A lease that was left behind fails the statement,
-- and claim.py goes on one by one.
with kinds as materialized (
  select k.kind, k.max_retries, k.key from unnest(:kinds::text[], :retries::smallint[], :keys::text[]) k(kind, max_retries, key)
  cross join lateral (select from perdure.job_queue q where q.lane = :lane and q.kind = k.kind and not q.held limit 1) waiting
  where not exists (select from perdure.queue_pauses z where z.lane = :lane and z.resumed_at is null)
), shares as (
  select p.priority::smallint as priority, k.kind, k.max_retries, k.key, :limit::bigint as number
  from generate_series(9, 1, -1) p(priority) cross join kinds k where (select count(*) from kinds) = 1
  union all
  select f.priority, f.kind, f.max_retries, f.key, count(*) from (
    select p.priority::smallint as priority, x.kind, x.max_retries, x.key from generate_series(9, 1, -1) p(priority) cross join lateral (
      select k.kind, k.max_retries, k.key, d.run_at, d.job_id from kinds k cross join lateral (
        select q.run_at, q.job_id from perdure.job_queue q
        where q.lane = :lane and q.kind = k.kind and q.priority = p.priority::smallint and not q.held
          and q.run_at <= perdure.db_now()
        order by q.run_at, q.job_id limit :limit) d
      order by d.run_at, d.job_id limit :limit) x
    where (select count(*) from kinds) > 1 limit :limit) f
  group by f.priority, f.kind, f.max_retries, f.key
), picked as materialized (
  select x.job_id, x.run_at, s.max_retries, coalesce(x.concurrency_key, s.key) as key from shares s cross join lateral (
    select q.job_id, q.run_at, j.concurrency_key from perdure.job_queue q join perdure.jobs j on j.id = any (array[q.job_id])
    where q.lane = :lane and q.kind = s.kind and q.priority = s.priority and not q.held and q.run_at <= perdure.db_now()
      and j.tenant_id = :tenant_id and j.kind = any (array[q.kind]) and (:only_job::uuid is null or q.job_id = :only_job)
    order by q.run_at, q.job_id limit s.number for update of q, j skip locked) x
  limit :limit
), taken as (
  delete from perdure.job_queue where job_id = any (array(select job_id from picked where key is null))
), moved as (
  update perdure.jobs j set status = 'RUNNING', prev_status = j.status, version = j.version + 1, attempt = j.attempt + 1,
    next_retry_at = null, started_at = coalesce(j.started_at, perdure.db_now()), updated_at = perdure.db_now(),
    max_retries = coalesce(j.max_retries, greatest(p.max_retries, j.retry_count)), note = :note::json
  from picked p where p.key is null and j.id = any (array[p.job_id]) and j.status in ('PENDING', 'RETRY', 'PARKED', 'WAITING_FOR_APPROVAL')
  returning j.id, j.attempt, j.kind, j.payload, j.priority, j.version, p.run_at,
    case when j.queue <> :queue or j.goal is not null or j.retry_count <> 0 or j.max_retries <> p.max_retries or j.lost_starts <> 0
        or j.suspicion <> 0 or j.idempotency_key is not null or j.deadline is not null
      then json_build_array(j.queue, j.goal, j.retry_count, j.max_retries, j.lost_starts, j.suspicion,
        j.idempotency_key,
        case when j.deadline is not null then
        (extract(epoch from least(greatest(j.deadline, '0002-01-01 UTC'), '9998-12-31 UTC')) * 1000000)::int8 end, null) end as more
), leased as (
  insert into perdure.job_claims (job_id, tenant_id, attempt, version, worker_id, ttl, expires_at)
  select id, :tenant_id, attempt, version, :worker_id, :ttl::interval, perdure.db_now() + :ttl::interval from moved
)
select m.id, m.attempt, m.kind, m.payload, m.priority, m.version, m.more,
  extract(epoch from perdure.db_now() - greatest(m.run_at, '0002-01-01 UTC'))::float8 as waited,
  (extract(epoch from perdure.db_now()) * 1000000)::int8 as claimed_at
from (
  select * from moved
  union all
  select p.job_id, null, null, null, null, null, p.run_at, null from picked p where p.key is not null
) m order by m.priority desc nulls last, m.run_at, m.id

-- name: claim_limited
-- only: postgres SQLite's is several statements, in limited.sql
-- What becomes of the jobs that the claim only found: see the function. ids: theirs.
select * from perdure.claim_limited(:tenant_id, :lane, :queue, :ids, :kinds::text[], :retries::smallint[], :keys::text[],
  :maxes::int[], :worker_id, :ttl::interval, :note::json, :limit::int, :alone)

-- name: claim_front
-- only: postgres for the rare claim that fails as a whole: which job would come first?
select q.job_id, q.kind from perdure.job_queue q join perdure.jobs j on j.id = any (array[q.job_id])
where q.lane = :lane and q.kind = any (:kinds::text[]) and not q.held and q.run_at <= perdure.db_now()
  and j.tenant_id = :tenant_id and j.kind = any (array[q.kind])
order by q.priority desc, q.run_at, q.job_id limit 1 for update of q, j skip locked

-- name: drop_stale_claim
-- only: postgres a lease that was left behind by hand, of a job that no worker holds; SQLite's claim replaces it
delete from perdure.job_claims k where k.job_id = :job_id and exists (select 1 from perdure.jobs j
  where j.id = k.job_id and j.status not in ('RUNNING', 'WAITING'))

-- name: push_back
-- A job that cannot be claimed stands aside so that its lane goes on, and the next job of its key may have the slot that it was let
-- through for.
with aside as (
  update perdure.job_queue set run_at = perdure.db_now() + interval '5 minutes', held = false where job_id = :job_id
  returning tenant_id, concurrency_key
)
insert into perdure.freed_slots (tenant_id, key) select tenant_id, concurrency_key from aside where concurrency_key is not null

-- name: next_due
-- The front of each range of the ready index.
with kinds as materialized (
  select l.lane, k.kind from unnest(:lanes::text[]) l(lane) cross join unnest(:kinds::text[]) k(kind)
  cross join lateral (select from perdure.job_queue q where q.lane = l.lane and q.kind = k.kind and not q.held limit 1) waiting
  where not exists (select from perdure.queue_pauses z where z.lane = l.lane and z.resumed_at is null)
)
select extract(epoch from min(least(greatest(x.run_at, '0002-01-01 UTC'), '9998-12-31 UTC')) - perdure.db_now())::float8 as seconds
from kinds k cross join generate_series(1, 9) p(priority) cross join lateral (
  select q.run_at from perdure.job_queue q where q.lane = k.lane and q.kind = k.kind and q.priority = p.priority::smallint
    and not q.held
  order by q.run_at limit 1) x

-- name: waiting_lanes
-- From one lane to the next one, not through their rows; then as next_due. prefix: of the tenant's lanes, empty for the tenant whose
-- lanes have none.
with recursive lanes as (
  (select q.lane from perdure.job_queue q where not q.held order by q.lane limit 1)
  union all
  select (select q.lane from perdure.job_queue q where q.lane > l.lane and not q.held order by q.lane limit 1) from lanes l where l.lane is not null
), kinds as materialized (
  select l.lane, k.kind from lanes l cross join unnest(:kinds::text[]) k(kind)
  cross join lateral (select from perdure.job_queue q where q.lane = l.lane and q.kind = k.kind and not q.held limit 1) waiting
  where case when :prefix::text = '' then position(':' in l.lane) = 0 else left(l.lane, length(:prefix::text)) = :prefix::text end
    and not exists (select from perdure.queue_pauses z where z.lane = l.lane and z.resumed_at is null)
)
select k.lane, bool_or(x.run_at <= perdure.db_now()) as due
from kinds k cross join generate_series(1, 9) p(priority) cross join lateral (
  select q.run_at from perdure.job_queue q where q.lane = k.lane and q.kind = k.kind and q.priority = p.priority::smallint
    and not q.held
  order by q.run_at limit 1) x
group by k.lane

-- name: release_held
-- Lets held jobs go on for which a slot has become free: see the function.
select perdure.release_held(:tenant_id, :limit::int) as released

-- name: recheck_held
-- Lets release_held look at every key that has held jobs.
select perdure.recheck_held(:tenant_id) as keys
