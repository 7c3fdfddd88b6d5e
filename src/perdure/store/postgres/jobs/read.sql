-- Jobs, attempts and events as people and programs look at them.

-- name: get_job
select j.*, coalesce(k.version, j.version) as head, s.checkpoint, s.progress, s.progress_text, s.tokens, s.cost,
  k.worker_id, k.expires_at, k.started as claim_started, k.cancel_requested_at, q.run_at as due_at, q.held,
  q.concurrency_key as handler_key,
  (select e.payload from perdure.job_events e where e.job_id = j.id and e.type = 'node_finished'
    order by e.version desc limit 1) as last_step,
  (select json_agg(json_build_object('key', w.key, 'kind', w.kind, 'subject_id', w.subject_id, 'until', w.until,
    'answered_at', w.answered_at)
    order by w.opened_at, w.key) from perdure.job_waits w where w.job_id = j.id) as waits
from perdure.jobs j left join perdure.job_claims k on k.job_id = j.id left join perdure.job_state s on s.job_id = j.id
left join perdure.job_queue q on q.job_id = j.id
where j.id = :job_id and j.tenant_id = :tenant_id

-- name: heads
select j.id, coalesce(k.version, j.version) as version, j.status
from perdure.jobs j left join perdure.job_claims k on k.job_id = j.id
where j.id = any (:ids::uuid[]) and j.tenant_id = :tenant_id

-- name: newest_rerun
-- Reruns of reruns too.
with recursive made(id) as (
  select :job_id::uuid
  union
  select j.id from made join perdure.jobs j on j.origin_id = made.id and j.origin_kind = 'rerun' and j.tenant_id = :tenant_id
)
select id from made order by id desc limit 1

-- name: find_job
-- By the last digits of an id. It reads all ids: an index cannot find a suffix.
select id from perdure.jobs where right(replace(id::text, '-', ''), length(:suffix)) = :suffix and tenant_id = :tenant_id limit 2

-- name: by_index
-- only: postgres for the rest of the transaction, read in the order of an index and stop when the page is full
select set_config(name, 'off', true)
from unnest(array['enable_seqscan', 'enable_sort', 'enable_hashagg', 'enable_hashjoin', 'enable_mergejoin',
  'enable_bitmapscan', 'enable_material']) name

-- name: list_jobs
-- sources: all, or kind, agent or tag (the one that is asked for), or tags (those that are), or any of queue, due (the part of it that is), claims, waits, FAILED, DEADLETTER and CANCELLED:
-- the small tables that name the jobs of some states. Filters that are null match any job.
-- Runs after by_index: the ids come from the indexes of those tables, merged, in the order wanted.
select j.*, coalesce(k.version, j.version) as head, s.checkpoint, s.progress, s.progress_text, s.tokens, s.cost,
  k.worker_id, k.expires_at, k.started as claim_started, k.cancel_requested_at, q.run_at as due_at, q.held,
  q.concurrency_key as handler_key,
  (select e.payload from perdure.job_events e where e.job_id = j.id and e.type = 'node_finished'
    order by e.version desc limit 1) as last_step,
  (select json_agg(json_build_object('key', w.key, 'kind', w.kind, 'subject_id', w.subject_id, 'until', w.until,
    'answered_at', w.answered_at)
    order by w.opened_at, w.key) from perdure.job_waits w where w.job_id = j.id) as waits
from (
  select i.*, page.job_id as place from (
    select distinct job_id from (
      (select id as job_id from perdure.jobs where 'all' = any (:sources::text[]) and (:before::uuid is null or id < :before)
        order by 1 desc)
      union all
      (select id from perdure.jobs where 'kind' = any (:sources) and kind = (:kinds::text[])[1]
        and (:before::uuid is null or id < :before) order by 1 desc)
      union all
      (select id from perdure.jobs where 'agent' = any (:sources) and agent_id = :agent
        and (:before::uuid is null or id < :before) order by 1 desc)
      union all
      (select job_id from perdure.job_tags where 'tag' = any (:sources) and tenant_id = :tenant_id and tag = (:tags::text[])[1]
        and (:before::uuid is null or job_id < :before) order by 1 desc)
      union all
      (select job_id from perdure.job_tags where 'tags' = any (:sources) and tenant_id = :tenant_id and tag = any (:tags)
        and (:before::uuid is null or job_id < :before) order by 1 desc)
      union all
      (select job_id from perdure.job_queue where 'queue' = any (:sources) and (:before::uuid is null or job_id < :before)
        order by 1 desc)
      union all
      (select job_id from perdure.job_queue where 'due' = any (:sources) and (:before::uuid is null or job_id < :before)
        and run_at <= perdure.db_now() order by 1 desc)
      union all
      (select job_id from perdure.job_claims where 'claims' = any (:sources) and (:before::uuid is null or job_id < :before)
        order by 1 desc)
      union all
      (select job_id from perdure.job_waits where 'waits' = any (:sources) and (:before::uuid is null or job_id < :before)
        order by 1 desc)
      union all
      (select job_id from perdure.job_failures where 'FAILED' = any (:sources) and status = 'FAILED'
        and (:before::uuid is null or job_id < :before) order by 1 desc)
      union all
      (select job_id from perdure.job_failures where 'DEADLETTER' = any (:sources) and status = 'DEADLETTER'
        and (:before::uuid is null or job_id < :before) order by 1 desc)
      union all
      (select job_id from perdure.job_failures where 'CANCELLED' = any (:sources) and status = 'CANCELLED'
        and (:before::uuid is null or job_id < :before) order by 1 desc)
    ) named order by job_id desc
  ) page join perdure.jobs i on i.id = any (array[page.job_id])
  where i.tenant_id = :tenant_id
    and (:statuses::text[] is null or i.status::text = any (:statuses)) and (:kinds::text[] is null or i.kind = any (:kinds))
    and (:queues::text[] is null or i.queue = any (:queues)) and (:since::timestamptz is null or i.created_at >= :since)
    and (:until::timestamptz is null or i.created_at < :until) and (:key::text is null or i.idempotency_key = :key)
    and (:tags is null or exists (select from perdure.job_tags t
      where t.tenant_id = i.tenant_id and t.tag = any (:tags) and t.job_id = i.id offset 0))
    and (:agent::text is null or i.agent_id = :agent) and (:session::text is null or i.session_id = :session)
    and (:search::text is null
      or position(lower(:search) in lower(i.kind || ' ' || coalesce(i.goal, '') || ' ' || coalesce(i.error_message, ''))) > 0)
  order by page.job_id desc limit :limit
) j
left join lateral (select * from perdure.job_claims where job_id = j.id offset 0) k on true
left join lateral (select * from perdure.job_state where job_id = j.id offset 0) s on true
left join lateral (select * from perdure.job_queue where job_id = j.id offset 0) q on true
order by j.place desc

-- name: count_jobs
-- by: status, kind or queue. The filters are those of list_jobs.
select case :by when 'status' then j.status::text when 'kind' then j.kind else j.queue end as grp, count(*) as n
from perdure.jobs j
where j.tenant_id = :tenant_id
  and (:statuses::text[] is null or j.status::text = any(:statuses)) and (:kinds::text[] is null or j.kind = any(:kinds))
  and (:queues::text[] is null or j.queue = any(:queues)) and (:since::timestamptz is null or j.created_at >= :since)
  and (:until::timestamptz is null or j.created_at < :until) and (:key::text is null or j.idempotency_key = :key)
  and (:tags::text[] is null or exists (select from perdure.job_tags t
    where t.tenant_id = j.tenant_id and t.tag = any (:tags) and t.job_id = j.id offset 0))
  and (:agent::text is null or j.agent_id = :agent) and (:session::text is null or j.session_id = :session)
  and (:search::text is null
    or position(lower(:search) in lower(j.kind || ' ' || coalesce(j.goal, '') || ' ' || coalesce(j.error_message, ''))) > 0)
group by 1

-- name: count_some_jobs
-- As count_jobs, where all wanted states are named by small tables (sources, as for list_jobs). History is not read.
-- A plain join would be planned by statistics: without them, as a loop over all jobs for each that is named.
select case :by when 'status' then j.status::text when 'kind' then j.kind else j.queue end as grp, count(*) as n
from (
  select job_id from perdure.job_queue where 'queue' = any (:sources::text[])
  union select job_id from perdure.job_queue where 'due' = any (:sources) and run_at <= perdure.db_now()
  union select job_id from perdure.job_claims where 'claims' = any (:sources)
  union select job_id from perdure.job_waits where 'waits' = any (:sources)
  union select job_id from perdure.job_failures where status::text = any (:sources)
  union select id from perdure.jobs where 'agent' = any (:sources) and agent_id = :agent
  union select job_id from perdure.job_tags where ('tag' = any (:sources) or 'tags' = any (:sources)) and tenant_id = :tenant_id and tag = any (:tags::text[])
) named cross join lateral (select * from perdure.jobs where id = named.job_id offset 0) j
where j.tenant_id = :tenant_id
  and (:statuses::text[] is null or j.status::text = any(:statuses)) and (:kinds::text[] is null or j.kind = any(:kinds))
  and (:queues::text[] is null or j.queue = any(:queues)) and (:since::timestamptz is null or j.created_at >= :since)
  and (:until::timestamptz is null or j.created_at < :until) and (:key::text is null or j.idempotency_key = :key)
  and (:tags::text[] is null or exists (select from perdure.job_tags t
    where t.tenant_id = j.tenant_id and t.tag = any (:tags) and t.job_id = j.id offset 0))
  and (:agent::text is null or j.agent_id = :agent) and (:session::text is null or j.session_id = :session)
  and (:search::text is null
    or position(lower(:search) in lower(j.kind || ' ' || coalesce(j.goal, '') || ' ' || coalesce(j.error_message, ''))) > 0)
group by 1

-- name: count_queued
-- count_some_jobs by status, where every job of these statuses has a row of job_queue and nothing else is asked: no job is read. The
-- tenant is a part of the lane.
select s.grp, q.n from unnest(:statuses::text[]) s(grp) cross join lateral (
  select count(*) as n from perdure.job_queue where status = s.grp::perdure.job_status
    and case when :tenant_id::text = 'default' then lane not like '%:%' else starts_with(lane, :tenant_id || ':') end) q
where q.n > 0

-- name: list_runs
select r.* from perdure.job_runs r join perdure.jobs j on j.id = r.job_id
where r.job_id = :job_id and j.tenant_id = :tenant_id order by r.attempt

-- name: list_events
select e.* from perdure.job_events e join perdure.jobs j on j.id = e.job_id and j.tenant_id = :tenant_id
where e.job_id = :job_id and e.version > :after and (:types::text[] is null or e.type = any (:types))
order by e.version limit :limit
