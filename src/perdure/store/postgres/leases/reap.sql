-- Taking jobs away from leases that ran out, and from handlers that do not stop.

-- name: reapable
-- only: postgres for the rare reaping that fails as a whole, to go on one by one.
select k.job_id from perdure.job_claims k
where (k.expires_at <= perdure.db_now() or case when k.cancel_requested_at is not null then
    k.cancel_requested_at <= perdure.db_now()
      - coalesce((select w.grace from perdure.workers w where w.id = k.worker_id), interval '10 seconds') end)
  and k.tenant_id = :tenant_id order by k.job_id limit :limit

-- name: reap
-- max_lost_starts: losses of unstarted claims that are one too many. only_job: null for any. crowds: of each worker that lost some,
-- its started jobs, with those that were taken from it before, the highest suspicion among them and how many have it; what follows
-- from that is in model/settlement.py. A lease that had an end, which has passed, is that of an attempt that ran into its timeout or
-- deadline. The grace is read only where a cancel was requested.
with lost as materialized (
  select k.job_id, k.version, k.attempt, k.worker_id, k.started, k.claimed_at, k.cancel_requested_at, k.cancel_note,
    k.expires_at <= perdure.db_now() as expired, coalesce(k.started and k.ends_at <= perdure.db_now(), false) as hung
  from perdure.job_claims k
  where (k.expires_at <= perdure.db_now() or case when k.cancel_requested_at is not null then
      k.cancel_requested_at <= perdure.db_now()
        - coalesce((select w.grace from perdure.workers w where w.id = k.worker_id), interval '10 seconds') end)
    and k.tenant_id = :tenant_id and (:only_job::uuid is null or k.job_id = :only_job)
  order by k.job_id limit :limit for update of k skip locked
), crowds as materialized (
  select c.worker_id, max(c.suspicion) as top,
    (sum(c.number) + coalesce((select w.losses from perdure.workers w where w.id = c.worker_id and w.tenant_id = :tenant_id), 0))::int as started,
    (array_agg(c.number order by c.suspicion desc))[1] as tops
  from (select k.worker_id, o.suspicion, count(*) as number from perdure.job_claims k
      join perdure.jobs o on o.id = any (array[k.job_id])
    where k.started and k.tenant_id = :tenant_id and k.worker_id = any (array(select l.worker_id from lost l where l.started))
    group by 1, 2) c group by 1
), counted as materialized (
  select w.id, x.number from perdure.workers w
  join (select l.worker_id, count(*) as number from lost l where l.started group by 1) x on x.worker_id = w.id
  where w.tenant_id = :tenant_id order by w.id for update of w
), remembered as (
  update perdure.workers w set losses = w.losses + c.number from counted c where w.id = c.id
), gone as (
  delete from perdure.job_claims k using lost l where k.job_id = any (array[l.job_id]) returning k.job_id
), blames as (
  select l.*, l.started and not l.hung and j.suspicion < :max_suspicion
      and case when j.suspicion >= :suspect_at then j.suspicion <> c.top or c.tops > 1 else c.started > 1 end as spared,
    row_number() over (partition by l.worker_id, l.started order by l.job_id) - 1 as place
  from lost l join gone g on g.job_id = l.job_id join perdure.jobs j on j.id = any (array[l.job_id])
  left join crowds c on c.worker_id = l.worker_id
), verdicts as (
  select l.*, (case when l.cancel_requested_at is not null then 'CANCELLED' when l.spared then 'RETRY'
      when l.hung and j.deadline <= perdure.db_now() then 'FAILED'
      when l.started and j.retry_count >= j.max_retries then 'DEADLETTER'
      when not l.started and j.lost_starts + 1 >= :max_lost_starts then 'DEADLETTER'
      else 'RETRY' end)::perdure.job_status as verdict,
    case when not l.spared then interval '0' when j.suspicion + 1 >= :suspect_at then least(60.0, l.place) * interval '1 second'
      else least(50, l.place) * interval '100 milliseconds' end as delay
  from blames l join perdure.jobs j on j.id = any (array[l.job_id])
), judged as (
  select v.*, (v.verdict = 'RETRY' and v.started and not v.spared)::int as uses_retry,
    (v.verdict = 'RETRY' and v.spared)::int as suspected, case when v.verdict = 'RETRY' then perdure.db_now() + v.delay end as due,
    case when v.verdict = 'CANCELLED' then null
      when v.hung and v.verdict = 'FAILED' then 'the deadline passed, and the handler did not stop'
      when v.hung then 'the attempt ran longer than its timeout, and the handler did not stop'
      when v.verdict = 'DEADLETTER' then 'the lease of worker ' || v.worker_id || ' ran out' end as error,
    case when v.hung then 'timeout' else 'lease_lost' end as error_kind
  from verdicts v
), moved as (
  update perdure.jobs j set status = g.verdict, prev_status = j.status, version = g.version + 1, updated_at = perdure.db_now(),
    retry_count = j.retry_count + g.uses_retry, suspicion = j.suspicion + g.suspected,
    lost_starts = j.lost_starts + (not g.started)::int, -- kept by a started loss: only the first crash of a loop is free
    next_retry_at = g.due,
    finished_at = case when g.verdict in ('CANCELLED', 'FAILED', 'DEADLETTER') then perdure.db_now() end,
    error_message = case when g.verdict in ('FAILED', 'DEADLETTER') then g.error end,
    error_kind = case when g.verdict in ('FAILED', 'DEADLETTER') then g.error_kind end,
    note = case when g.verdict = 'CANCELLED' then coalesce(g.cancel_note, '{}') else
      json_strip_nulls(json_build_object('reason', case when g.hung then 'timeout' else 'lease_expired' end,
        'lost_worker', g.worker_id, 'actor', 'worker:' || :reaper::text,
        'via', 'reaper', 'retry_count', j.retry_count + g.uses_retry,
        'suspicion', case when g.suspected > 0 then j.suspicion + 1 end, 'next_retry_at', case when g.suspected > 0 then g.due end,
        'error', g.error, 'error_kind', case when g.error is not null then g.error_kind end)) end
  from judged g where j.id = any (array[g.job_id])
  returning j.id, j.kind, j.attempt, j.status, g.error, g.error_kind, g.worker_id, g.started, g.claimed_at, g.expired
), ran as (
  insert into perdure.job_incomplete_runs (job_id, attempt, worker_id, started_at, finished_at, outcome, error_message, error_kind)
  select id, attempt, worker_id, claimed_at, perdure.db_now(), status,
    case when expired then coalesce(error, 'its lease ran out') else 'it did not stop when it was cancelled' end,
    case when expired then error_kind else 'cancelled' end
  from moved where started
)
select id, status::text, worker_id, kind from moved
