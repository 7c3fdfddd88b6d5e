-- Unique keys: at most one job of a kind has such a key while it is active, or for a period. The same table and columns as on
-- PostgreSQL; see there.

alter table jobs add column unique_key text
  check (unique_key is null or (length(unique_key) between 1 and 200 and idempotency_key is null));
alter table jobs add column unique_until integer check (unique_until is null or unique_key is not null);
alter table jobs add column on_conflict text check (on_conflict is null or (unique_key is not null
  and on_conflict in ('return', 'replace', 'refuse') and (on_conflict <> 'replace' or unique_until is null)));

create table unique_keys (
  tenant_id text not null,
  kind text not null,
  key text not null,
  job_id text not null,
  until integer,
  primary key (tenant_id, kind, key)
) strict, without rowid;

-- The payload of a job that has not started may be replaced, by a statement that also writes the event.
drop trigger jobs_payload_kept;
create trigger jobs_payload_kept after update of payload, payload_hash on jobs
when new.payload_hash is not old.payload_hash
  or (new.payload <> old.payload and (old.pruned_at is not null or new.pruned_at is null or new.payload <> 'null')
    and (old.status <> 'PENDING' or new.status <> 'PENDING' or new.version = old.version))
begin
  select raise(abort, 'the payload of a job cannot be rewritten');
end;

-- Another job has the key: it is replaced if it has not started, and the new one is skipped, as by `on conflict do nothing`.
create trigger jobs_unique_taken before insert on jobs
when new.unique_key is not null and exists (select 1 from unique_keys k where k.tenant_id = new.tenant_id and k.kind = new.kind
  and k.key = new.unique_key and (k.until is null or k.until > (select now from clock)))
begin
  -- stored before, by a call whose answer was lost
  select raise(ignore) where exists (select 1 from jobs j where j.id = new.id);
  select raise(ignore) where new.on_conflict is not 'replace';
  insert into job_events (job_id, version, created_at, type, payload)
    select j.id, j.version + 1, (select now from clock), 'job_replaced', new.note from unique_keys k join jobs j on j.id = k.job_id
    where k.tenant_id = new.tenant_id and k.kind = new.kind and k.key = new.unique_key and j.status = 'PENDING';
  update job_queue set run_at = coalesce(nullif(new.run_at, 0), (select now from clock)), priority = new.priority,
      deadline = new.deadline
    where job_id = (select j.id from unique_keys k join jobs j on j.id = k.job_id
      where k.tenant_id = new.tenant_id and k.kind = new.kind and k.key = new.unique_key and j.status = 'PENDING');
  update jobs set payload = new.payload, goal = new.goal, run_at = coalesce(nullif(new.run_at, 0), (select now from clock)),
      priority = new.priority, deadline = new.deadline, max_retries = new.max_retries, updated_at = (select now from clock),
      version = version + 1, prev_status = status
    where status = 'PENDING' and id = (select k.job_id from unique_keys k
      where k.tenant_id = new.tenant_id and k.kind = new.kind and k.key = new.unique_key);
  -- One that has started goes on without the key.
  select raise(ignore) where exists (select 1 from unique_keys k join jobs j on j.id = k.job_id
    where k.tenant_id = new.tenant_id and k.kind = new.kind and k.key = new.unique_key and j.status = 'PENDING');
end;

create trigger jobs_unique after insert on jobs when new.unique_key is not null
begin
  insert into unique_keys (tenant_id, kind, key, job_id, until)
    values (new.tenant_id, new.kind, new.unique_key, new.id, new.unique_until)
    on conflict (tenant_id, kind, key) do update set job_id = excluded.job_id, until = excluded.until;
end;

create trigger jobs_ended_unique after update of finished_at on jobs
when old.finished_at is null and new.finished_at is not null and new.unique_key is not null
begin
  delete from unique_keys where tenant_id = new.tenant_id and kind = new.kind and key = new.unique_key and job_id = new.id
    and until is null;
end;
