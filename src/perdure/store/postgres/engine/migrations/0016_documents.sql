-- Documents: what the adapters of other libraries keep.
--
--   documents   a value and bytes under a key; a range of keys is what belongs together

create table perdure.documents (
  tenant_id text not null default 'default',
  collection text not null,
  key text collate "C" not null,
  value json not null,
  body bytea,
  created_at timestamptz not null default perdure.db_now(),
  updated_at timestamptz not null default perdure.db_now(),
  primary key (tenant_id, collection, key),
  constraint documents_key check (length(collection) between 1 and 100 and octet_length(key) between 1 and 2000)
);

-- Roles that may write the other tables may write this one.
do $$
declare
  r record;
begin
  for r in select case a.grantee when 0 then 'public' else a.grantee::regrole::text end as who,
      string_agg(a.privilege_type, ', ') as rights
    from pg_catalog.pg_class c cross join pg_catalog.aclexplode(c.relacl) a
    where c.oid = 'perdure.job_claims'::regclass and a.grantee <> c.relowner
      and a.privilege_type in ('SELECT', 'INSERT', 'UPDATE', 'DELETE') group by a.grantee loop
    execute format('grant %s on perdure.documents to %s', r.rights, r.who);
  end loop;
end $$;

comment on table perdure.documents is 'Values under sorted keys, which the adapters of other libraries keep.';
comment on column perdure.documents.tenant_id is 'Whose it is.';
comment on column perdure.documents.collection is 'The adapter and what it keeps, such as langgraph-checkpoints.';
comment on column perdure.documents.key is 'Its parts are separated by slashes; a slash in a part is written %2F.';
comment on column perdure.documents.value is 'What the adapter reads of it without its body.';
comment on column perdure.documents.body is 'Bytes, as the library made them.';
comment on column perdure.documents.created_at is 'When it was stored first.';
comment on column perdure.documents.updated_at is 'When it was stored last.';
