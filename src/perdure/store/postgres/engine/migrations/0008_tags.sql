-- Tags of jobs, by which they are listed and counted.
--
--   jobs           tags: a JSON array of texts, null without any
--   job_tags       one row for each tag of a job, so that a list of them reads no history; jobs without tags have none

alter table perdure.jobs add column tags json constraint jobs_tags check (json_typeof(tags) = 'array');

create table perdure.job_tags (
  tenant_id text not null,
  tag text not null,
  job_id uuid not null,
  primary key (tenant_id, tag, job_id)
);

-- Roles that may write the other tables may write this one.
do $$
declare
  r record;
begin
  for r in select case a.grantee when 0 then 'public' else a.grantee::regrole::text end as who,
      string_agg(a.privilege_type, ', ') as rights
    from pg_catalog.pg_class c cross join pg_catalog.aclexplode(c.relacl) a
    where c.oid = 'perdure.job_waits'::regclass and a.grantee <> c.relowner
      and a.privilege_type in ('SELECT', 'INSERT', 'UPDATE', 'DELETE') group by a.grantee loop
    execute format('grant %s on perdure.job_tags to %s', r.rights, r.who);
  end loop;
end $$;

-- With the rights of the schema's owner: a role that may insert into some columns of jobs needs no right on other tables.
create function perdure.jobs_tagged() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp
  set enable_seqscan = off as $$
begin
  if tg_op = 'UPDATE' and old.tags is not null then
    delete from perdure.job_tags t using json_array_elements_text(old.tags) o(tag)
      where t.tenant_id = new.tenant_id and t.tag = any (array[o.tag]) and t.job_id = new.id;
  end if;
  if new.tags is not null then
    insert into perdure.job_tags (tenant_id, tag, job_id)
      select new.tenant_id, n.tag, new.id from json_array_elements_text(new.tags) n(tag) on conflict do nothing;
  end if;
  return null;
end $$;
create trigger jobs_tagged after insert on perdure.jobs for each row when (new.tags is not null)
  execute function perdure.jobs_tagged();
create trigger jobs_tagged_again after update of tags on perdure.jobs for each row
  when (new.tags::text is distinct from old.tags::text) execute function perdure.jobs_tagged();

comment on column perdure.jobs.tags is 'Its tags, as a JSON array; null without any.';
comment on table perdure.job_tags is 'One row for each tag of a job.';
comment on column perdure.job_tags.tenant_id is 'As in jobs.';
comment on column perdure.job_tags.tag is 'The tag.';
comment on column perdure.job_tags.job_id is 'The job.';
