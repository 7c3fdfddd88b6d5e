-- Tags of jobs, by which they are listed and counted. The same table and column as on PostgreSQL; see there.

alter table jobs add column tags text
  check (tags is null or (json_valid(tags) and json_type(tags) = 'array'));

create table job_tags (
  tenant_id text not null,
  tag text not null,
  job_id text not null,
  primary key (tenant_id, tag, job_id)
) strict, without rowid;

create trigger jobs_tagged after insert on jobs when new.tags is not null
begin
  insert into job_tags (tenant_id, tag, job_id) select new.tenant_id, e.value, new.id from json_each(new.tags) e where true
    on conflict do nothing;
end;

create trigger jobs_tagged_again after update of tags on jobs when new.tags is not old.tags
begin
  delete from job_tags where tenant_id = new.tenant_id and job_id = new.id
    and tag in (select e.value from json_each(coalesce(old.tags, '[]')) e);
  insert into job_tags (tenant_id, tag, job_id)
    select new.tenant_id, e.value, new.id from json_each(coalesce(new.tags, '[]')) e where true
    on conflict do nothing;
end;
