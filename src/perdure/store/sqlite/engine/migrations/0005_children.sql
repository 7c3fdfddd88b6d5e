-- Children: jobs that a job has spawned, and its waits for their ends. The same tables and columns as on PostgreSQL; see there.

alter table jobs add column parent_id text;
create index jobs_parent on jobs (parent_id, id) where parent_id is not null;

create table awaited_jobs (
  job_id text not null,
  key text not null,
  child_id text not null,
  primary key (job_id, key, child_id)
) strict, without rowid;
create index awaited_jobs_child on awaited_jobs (child_id);

create table cancelled_parents (job_id text not null primary key, tenant_id text not null) strict, without rowid;

-- The last of the awaited jobs answers the wait.
create trigger jobs_ended_child after update of finished_at on jobs
when old.finished_at is null and new.finished_at is not null and new.parent_id is not null
  and exists (select 1 from awaited_jobs where child_id = new.id)
begin
  update job_waits set answered_at = (select now from clock)
    where job_id in (select a.job_id from awaited_jobs a where a.child_id = new.id) and kind = 'child'
      and key in (select a.key from awaited_jobs a where a.child_id = new.id) and answered_at is null
      and not exists (select 1 from awaited_jobs o where o.job_id = job_waits.job_id and o.key = job_waits.key
        and o.child_id <> new.id);
  delete from awaited_jobs where child_id = new.id;
end;

create trigger jobs_cancelled_parent after update of finished_at on jobs
when old.finished_at is null and new.finished_at is not null and new.status = 'CANCELLED'
  and exists (select 1 from jobs c where c.parent_id = new.id and c.finished_at is null)
begin
  insert into cancelled_parents (job_id, tenant_id) values (new.id, new.tenant_id) on conflict do nothing;
end;

-- A wait that is closed waits for no job.
create trigger job_waits_child_closed after delete on job_waits when old.kind = 'child'
begin
  delete from awaited_jobs where job_id = old.job_id and key = old.key;
end;
