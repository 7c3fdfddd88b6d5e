-- The ends of attempts, for all callers that arrived meanwhile. Lists of values are arrays, one element for each end, sorted by job
-- id. For the lock order and `any (array[x])` see record.sql.

-- name: complete_many
-- The ends that completed. seconds: how long the handler ran, null where it never did. Of tenants, attempts, workers and results one
-- element may stand for all; note: that of the worker, null where there are several. moved: null where all moved, else the ids of
-- those that did. children: whether any of them has a parent. The run row is a view over the event.
-- The status is not looked at here: an illegal transition must fail as such, not vanish together with its claim.
with done as (
  delete from perdure.job_claims k
  using unnest(:ids::uuid[], :tenant_ids::text[], :attempts::int[], :worker_ids::text[], :results::text[], :seconds::float4[])
    u(id, tenant_id, attempt, worker_id, result, ran)
  where k.job_id = any (array[u.id]) and k.attempt = coalesce(u.attempt, :attempts[1])
    and k.worker_id = coalesce(u.worker_id, :worker_ids[1]) and k.tenant_id = coalesce(u.tenant_id, :tenant_ids[1])
    and k.expires_at > perdure.db_now()
  returning k.job_id, k.version, k.worker_id, u.ran,
    case cardinality(:results::text[]) when 1 then :results[1] else u.result end as result
), moved as (
  update perdure.jobs j set status = 'COMPLETED', prev_status = j.status, version = d.version + 1, result = d.result::json,
    finished_at = perdure.db_now(), updated_at = perdure.db_now(), ran = d.ran,
    note = coalesce(:note::json, json_build_object('worker', d.worker_id))
  from done d where j.id = any (array[d.job_id]) returning j.id, j.parent_id
)
select case when count(*) < cardinality(:ids::uuid[]) then coalesce(array_agg(id), '{}') end as moved,
  count(parent_id) > 0 as children from moved

-- name: settle_many
-- The other ends. seconds: how long user code ran. A retry where none is left becomes DEADLETTER, without an increment; an end that
-- is not final (RETRY, PARKED, ...) becomes CANCELLED where that was asked for.
with done as (
  delete from perdure.job_claims k
  using unnest(:ids::uuid[], :tenant_ids::text[], :attempts::int[], :worker_ids::text[], :statuses::text[], :errors::text[],
    :error_kinds::text[], :delays::float8[], :uses_retry::bool[], :reasons::text[], :started::bool[], :seconds::float8[],
    :tracebacks::text[])
    u(id, tenant_id, attempt, worker_id, status, error, error_kind, delay, uses_retry, reason, started, ran, traceback)
  where k.job_id = any (array[u.id]) and k.attempt = u.attempt and k.worker_id = u.worker_id and k.tenant_id = u.tenant_id
    and k.expires_at > perdure.db_now()
  returning k.job_id, k.version, k.cancel_note, u.*
), verdicts as (
  select d.*, case
    when d.cancel_note is not null and d.status in ('RETRY', 'PARKED', 'WAITING_FOR_APPROVAL') then 'CANCELLED'
    when d.status = 'RETRY' and d.uses_retry and j.retry_count >= j.max_retries then 'DEADLETTER'
    else d.status end::perdure.job_status as verdict
  from done d join perdure.jobs j on j.id = any (array[d.job_id])
), judged as (
  select v.job_id, v.version, v.cancel_note, v.worker_id, v.delay, v.uses_retry, v.reason, v.started, v.ran, v.traceback,
    v.verdict, case when v.verdict in ('FAILED', 'DEADLETTER') then coalesce(v.error, v.reason, 'failed') else v.error end as error,
    coalesce(v.error_kind, case v.verdict when 'FAILED' then 'fatal' when 'DEADLETTER' then 'exhausted' end) as error_kind
  from verdicts v
), moved as (
  update perdure.jobs j set status = g.verdict, prev_status = j.status, version = g.version + 1, updated_at = perdure.db_now(),
    retry_count = j.retry_count + (g.verdict = 'RETRY' and g.uses_retry)::int,
    lost_starts = case when g.started then 0 else j.lost_starts end,
    suspicion = case when g.started and (g.verdict <> 'RETRY' or g.uses_retry) then 0 else j.suspicion end,
    next_retry_at = case when g.verdict = 'RETRY' then perdure.db_now() + g.delay * interval '1 second' end,
    finished_at = case when g.verdict in ('FAILED', 'CANCELLED', 'DEADLETTER') then perdure.db_now() end,
    error_message = case when g.verdict in ('FAILED', 'DEADLETTER') then g.error end,
    error_kind = case when g.verdict in ('FAILED', 'DEADLETTER') then g.error_kind end,
    note = case when g.verdict = 'CANCELLED' and g.cancel_note is not null then g.cancel_note
      else json_strip_nulls(json_build_object('worker', g.worker_id, 'reason', g.reason, 'error', g.error,
        'error_kind', g.error_kind, 'traceback', g.traceback,
        'retry_count', case when g.verdict = 'RETRY' then j.retry_count + g.uses_retry::int end,
        'next_retry_at', case when g.verdict = 'RETRY' then perdure.db_now() + g.delay * interval '1 second' end)) end
  from judged g where j.id = any (array[g.job_id])
  returning j.id, j.attempt, j.status, g.worker_id, g.started, g.ran, g.error, g.error_kind
), ran as (
  insert into perdure.job_incomplete_runs (job_id, attempt, worker_id, started_at, finished_at, outcome, error_message, error_kind)
  select id, attempt, worker_id, perdure.db_now() - ran * interval '1 second', perdure.db_now(), status, error, error_kind
  from moved where started
)
select id, status::text from moved

-- name: was_settled
-- only: postgres a file's commit is never ambiguous
-- After a lost commit: how did this attempt end? The note says who did it.
-- The first transition out of the lease is the end of the attempt; later ones (a parked job is cancelled) are not.
-- The note is not looked into here: JSON with \u0000 in it is legal and cannot be taken apart by PostgreSQL.
select to_status::text as status, payload from perdure.job_events
where job_id = :job_id and attempt = :attempt and to_status not in ('RUNNING', 'WAITING') order by version limit 1
