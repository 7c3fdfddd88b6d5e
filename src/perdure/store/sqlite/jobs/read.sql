-- Reading jobs, their events and their runs.
-- Where the dialect differs: lists are JSON arrays. `fold` is Python's casefold, because lower() knows ASCII only here.

-- name: get_job
select j.*, coalesce(k.version, j.version) as head, s.checkpoint, s.progress, s.progress_text, s.tokens, s.cost,
  k.worker_id, k.expires_at, k.started as claim_started, k.cancel_requested_at, q.run_at as due_at, q.held,
  q.concurrency_key as handler_key,
  (select e.payload ->> '$.key' from job_events e where e.job_id = j.id and e.type = 'node_finished'
    order by e.version desc limit 1) as cursor,
  (select json_group_array(json_object('key', w.key, 'kind', w.kind, 'subject_id', w.subject_id, 'until', w.until,
    'answered_at', w.answered_at))
    from (select * from job_waits where job_id = j.id order by opened_at, key) w) as waits
from jobs j left join job_claims k on k.job_id = j.id left join job_state s on s.job_id = j.id
left join job_queue q on q.job_id = j.id
where j.id = :job_id and j.tenant_id = :tenant_id

-- name: heads
select j.id, coalesce(k.version, j.version) as version, j.status
from jobs j left join job_claims k on k.job_id = j.id
where j.id in (select value from json_each(:ids)) and j.tenant_id = :tenant_id

-- name: newest_rerun
-- Reruns of reruns too.
with recursive made(id) as (
  select :job_id
  union
  select j.id from made join jobs j on j.origin_id = made.id and j.origin_kind = 'rerun' and j.tenant_id = :tenant_id
)
select id from made order by id desc limit 1

-- name: find_job
-- The last digits of an id. The inner query reads an index of the ids only.
select id from jobs where id in (select id from jobs where substr(replace(id, '-', ''), -length(:suffix)) = :suffix)
  and tenant_id = :tenant_id limit 2

-- name: list_jobs
-- All jobs, newest first; JSON arrays for lists, null for any; 'g' comes after every id.
select j.*, coalesce(k.version, j.version) as head, s.checkpoint, s.progress, s.progress_text, s.tokens, s.cost,
  k.worker_id, k.expires_at, k.started as claim_started, k.cancel_requested_at, q.run_at as due_at, q.held,
  q.concurrency_key as handler_key,
  (select e.payload ->> '$.key' from job_events e where e.job_id = j.id and e.type = 'node_finished'
    order by e.version desc limit 1) as cursor,
  (select json_group_array(json_object('key', w.key, 'kind', w.kind, 'subject_id', w.subject_id, 'until', w.until,
    'answered_at', w.answered_at))
    from (select * from job_waits where job_id = j.id order by opened_at, key) w) as waits
from jobs j left join job_claims k on k.job_id = j.id left join job_state s on s.job_id = j.id
left join job_queue q on q.job_id = j.id
where j.tenant_id = :tenant_id and j.id < coalesce(:before, 'g')
  and (:statuses is null or j.status in (select value from json_each(:statuses)))
  and (:kinds is null or j.kind in (select value from json_each(:kinds)))
  and (:queues is null or j.queue in (select value from json_each(:queues)))
  and (:since is null or j.created_at >= :since) and (:until is null or j.created_at < :until)
  and (:key is null or j.idempotency_key = :key)
  and (:tags is null or exists (select 1 from job_tags t where t.tenant_id = j.tenant_id
    and t.tag in (select value from json_each(:tags)) and t.job_id = j.id))
  and (:agent is null or j.agent_id = :agent) and (:session is null or j.session_id = :session)
  and (:search is null
    or instr(fold(cast(j.kind || ' ' || coalesce(j.goal, '') || ' ' || coalesce(j.error_message, '') as blob)),
      fold(cast(:search as blob))) > 0)
order by j.id desc limit :limit

-- name: list_jobs_of_kind
-- only: sqlite see list_some_jobs; as list_jobs, of one kind
select j.*, coalesce(k.version, j.version) as head, s.checkpoint, s.progress, s.progress_text, s.tokens, s.cost,
  k.worker_id, k.expires_at, k.started as claim_started, k.cancel_requested_at, q.run_at as due_at, q.held,
  q.concurrency_key as handler_key,
  (select e.payload ->> '$.key' from job_events e where e.job_id = j.id and e.type = 'node_finished'
    order by e.version desc limit 1) as cursor,
  (select json_group_array(json_object('key', w.key, 'kind', w.kind, 'subject_id', w.subject_id, 'until', w.until,
    'answered_at', w.answered_at))
    from (select * from job_waits where job_id = j.id order by opened_at, key) w) as waits
from jobs j indexed by jobs_kind left join job_claims k on k.job_id = j.id left join job_state s on s.job_id = j.id
left join job_queue q on q.job_id = j.id
where j.tenant_id = :tenant_id and j.kind = :kind and j.id < coalesce(:before, 'g')
  and (:statuses is null or j.status in (select value from json_each(:statuses)))
  and (:queues is null or j.queue in (select value from json_each(:queues)))
  and (:since is null or j.created_at >= :since) and (:until is null or j.created_at < :until)
  and (:key is null or j.idempotency_key = :key)
  and (:tags is null or exists (select 1 from job_tags t where t.tenant_id = j.tenant_id
    and t.tag in (select value from json_each(:tags)) and t.job_id = j.id))
  and (:agent is null or j.agent_id = :agent) and (:session is null or j.session_id = :session)
  and (:search is null
    or instr(fold(cast(j.kind || ' ' || coalesce(j.goal, '') || ' ' || coalesce(j.error_message, '') as blob)),
      fold(cast(:search as blob))) > 0)
order by j.id desc limit :limit

-- name: list_some_jobs
-- only: sqlite the planner cannot choose a source by a parameter: as list_jobs, of the jobs that one of the next six names
select j.*, coalesce(k.version, j.version) as head, s.checkpoint, s.progress, s.progress_text, s.tokens, s.cost,
  k.worker_id, k.expires_at, k.started as claim_started, k.cancel_requested_at, q.run_at as due_at, q.held,
  q.concurrency_key as handler_key,
  (select e.payload ->> '$.key' from job_events e where e.job_id = j.id and e.type = 'node_finished'
    order by e.version desc limit 1) as cursor,
  (select json_group_array(json_object('key', w.key, 'kind', w.kind, 'subject_id', w.subject_id, 'until', w.until,
    'answered_at', w.answered_at))
    from (select * from job_waits where job_id = j.id order by opened_at, key) w) as waits
from jobs j left join job_claims k on k.job_id = j.id left join job_state s on s.job_id = j.id
left join job_queue q on q.job_id = j.id
where j.tenant_id = :tenant_id and j.id in (select value from json_each(:ids))
  and (:statuses is null or j.status in (select value from json_each(:statuses)))
  and (:kinds is null or j.kind in (select value from json_each(:kinds)))
  and (:queues is null or j.queue in (select value from json_each(:queues)))
  and (:since is null or j.created_at >= :since) and (:until is null or j.created_at < :until)
  and (:key is null or j.idempotency_key = :key)
  and (:tags is null or exists (select 1 from job_tags t where t.tenant_id = j.tenant_id
    and t.tag in (select value from json_each(:tags)) and t.job_id = j.id))
  and (:agent is null or j.agent_id = :agent) and (:session is null or j.session_id = :session)
  and (:search is null
    or instr(fold(cast(j.kind || ' ' || coalesce(j.goal, '') || ' ' || coalesce(j.error_message, '') as blob)),
      fold(cast(:search as blob))) > 0)
order by j.id desc limit :limit

-- name: leased_ids
-- only: sqlite see list_some_jobs
select job_id from job_claims where job_id < coalesce(:before, 'g') order by job_id desc limit :limit

-- name: queued_ids
-- only: sqlite see list_some_jobs
select job_id from job_queue where job_id < coalesce(:before, 'g') order by job_id desc limit :limit

-- name: live_ids
-- only: sqlite see list_some_jobs
select job_id from job_queue where job_id < coalesce(:before, 'g')
union select job_id from job_claims where job_id < coalesce(:before, 'g')
union select job_id from job_waits where job_id < coalesce(:before, 'g')
order by job_id desc limit :limit

-- name: failed_ids
-- only: sqlite see list_some_jobs
select * from (select job_id from job_failures where status = 'FAILED' and job_id < coalesce(:before, 'g')
  and 'FAILED' in (select value from json_each(:statuses)) order by job_id desc limit :limit)
union all
select * from (select job_id from job_failures where status = 'DEADLETTER' and job_id < coalesce(:before, 'g')
  and 'DEADLETTER' in (select value from json_each(:statuses)) order by job_id desc limit :limit)
union all
select * from (select job_id from job_failures where status = 'CANCELLED' and job_id < coalesce(:before, 'g')
  and 'CANCELLED' in (select value from json_each(:statuses)) order by job_id desc limit :limit)
order by job_id desc limit :limit

-- name: agent_ids
-- only: sqlite see list_some_jobs
select id as job_id from jobs where agent_id = :agent and id < coalesce(:before, 'g') order by id desc limit :limit

-- name: tagged_ids
-- only: sqlite see list_some_jobs
select job_id from job_tags where tenant_id = :tenant_id and tag = :tags ->> 0 and job_id < coalesce(:before, 'g')
order by job_id desc limit :limit

-- name: any_tagged_ids
-- only: sqlite as tagged_ids, of several tags
select distinct job_id from job_tags where tenant_id = :tenant_id and tag in (select value from json_each(:tags))
  and job_id < coalesce(:before, 'g') order by job_id desc limit :limit

-- name: count_jobs
select case :by when 'status' then j.status when 'kind' then j.kind else j.queue end as grp, count(*) as n
from jobs j
where j.tenant_id = :tenant_id
  and (:statuses is null or j.status in (select value from json_each(:statuses)))
  and (:kinds is null or j.kind in (select value from json_each(:kinds)))
  and (:queues is null or j.queue in (select value from json_each(:queues)))
  and (:since is null or j.created_at >= :since) and (:until is null or j.created_at < :until)
  and (:key is null or j.idempotency_key = :key)
  and (:tags is null or exists (select 1 from job_tags t where t.tenant_id = j.tenant_id
    and t.tag in (select value from json_each(:tags)) and t.job_id = j.id))
  and (:agent is null or j.agent_id = :agent) and (:session is null or j.session_id = :session)
  and (:search is null
    or instr(fold(cast(j.kind || ' ' || coalesce(j.goal, '') || ' ' || coalesce(j.error_message, '') as blob)),
      fold(cast(:search as blob))) > 0)
group by 1

-- name: count_some_jobs
-- As count_jobs, where all wanted states are named by small tables: :source, the name of one of the seven above.
select case :by when 'status' then j.status when 'kind' then j.kind else j.queue end as grp, count(*) as n
from (
  select job_id from job_queue where :source in ('queued_ids', 'live_ids')
  union select job_id from job_claims where :source in ('leased_ids', 'live_ids')
  union select job_id from job_waits where :source = 'live_ids'
  union select job_id from job_failures where :source = 'failed_ids'
  union select id from jobs where :source = 'agent_ids' and agent_id = :agent
  union select job_id from job_tags where :source in ('tagged_ids', 'any_tagged_ids') and tenant_id = :tenant_id
    and tag in (select value from json_each(:tags))
) named cross join jobs j on j.id = named.job_id
where j.tenant_id = :tenant_id
  and (:statuses is null or j.status in (select value from json_each(:statuses)))
  and (:kinds is null or j.kind in (select value from json_each(:kinds)))
  and (:queues is null or j.queue in (select value from json_each(:queues)))
  and (:since is null or j.created_at >= :since) and (:until is null or j.created_at < :until)
  and (:key is null or j.idempotency_key = :key)
  and (:tags is null or exists (select 1 from job_tags t where t.tenant_id = j.tenant_id
    and t.tag in (select value from json_each(:tags)) and t.job_id = j.id))
  and (:agent is null or j.agent_id = :agent) and (:session is null or j.session_id = :session)
  and (:search is null
    or instr(fold(cast(j.kind || ' ' || coalesce(j.goal, '') || ' ' || coalesce(j.error_message, '') as blob)),
      fold(cast(:search as blob))) > 0)
group by 1

-- name: count_queued
-- count_some_jobs by status, where every job of these statuses has a row of job_queue and nothing else is asked: no job is read. The
-- tenant is a part of the lane.
select status as grp, count(*) as n from job_queue
where status in (select value from json_each(:statuses))
  and case when :tenant_id = 'default' then instr(lane, ':') = 0 else substr(lane, 1, length(:tenant_id) + 1) = :tenant_id || ':' end
group by 1

-- name: list_runs
select r.* from job_runs r join jobs j on j.id = r.job_id where r.job_id = :job_id and j.tenant_id = :tenant_id order by r.attempt

-- name: list_events
select e.* from job_events e join jobs j on j.id = e.job_id and j.tenant_id = :tenant_id
where e.job_id = :job_id and e.version > :after
  and (:types is null or e.type in (select value from json_each(:types))) order by e.version limit :limit
