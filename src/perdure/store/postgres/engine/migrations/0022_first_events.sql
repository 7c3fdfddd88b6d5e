-- What a job is enqueued with, by a caller's transaction whose role may not write to the log.

-- Writes what the logs of new jobs begin with, after the event that they were enqueued. events: a JSON array of objects with job_id,
-- type and payload (JSON text). Only for jobs that this transaction has inserted: its time is that of their creation.
create function perdure.begin_logs(events text) returns boolean language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp as $$
declare
  refused uuid;
begin
  select e.job_id into refused from json_to_recordset($1::json) e(job_id uuid, type text)
    where e.type not in ('fields_set', 'budget_set', 'stuck_set', 'approval_context_set') or not exists (
      select from perdure.jobs j
      where j.id = e.job_id and j.status = 'PENDING' and j.version = 1 and j.created_at = perdure.db_now())
    limit 1;
  if found then
    raise exception 'the log of job % does not begin in this transaction, or not with such an event', refused
      using errcode = '23514';
  end if;
  insert into perdure.job_events (job_id, version, attempt, type, payload)
    select (e.one ->> 'job_id')::uuid, 1 + row_number() over (partition by e.one ->> 'job_id' order by e.n), 0, e.one ->> 'type',
      (e.one ->> 'payload')::json
    from json_array_elements($1::json) with ordinality e(one, n);
  update perdure.jobs j set version = 1 + e.many, prev_status = j.status
    from (select job_id, count(*)::int as many from json_to_recordset($1::json) r(job_id uuid) group by job_id) e
    where j.id = e.job_id;
  return true;
end $$;
