-- Long-term memory: entries, and what searches find them by. Nothing of it is ever deleted with a job.
--
--   memory_scopes    whose entries are: one row for each user, agent, job, project, and one for the tenant; every change of an entry
--                    locks it, so its version orders the changes, and its sums are right
--   memory_entries   one row each
--   memory_terms     the terms of the entries that are found, each with the number of times it is in the entry
--   memory_vectors   their vectors

create table perdure.memory_scopes (
  no int generated always as identity primary key,
  tenant_id text not null default 'default',
  scope text not null,
  version bigint not null default 0,
  entries int not null default 0,
  tokens bigint not null default 0,
  constraint memory_scopes_scope unique (tenant_id, scope),
  constraint memory_scopes_kind check (scope = 'tenant' or scope ~ '^(job|agent|user|project):.'),
  constraint memory_scopes_sums check (entries >= 0 and tokens >= 0)
);

create table perdure.memory_entries (
  no bigint generated always as identity primary key,
  tenant_id text not null default 'default',
  id uuid not null default gen_random_uuid(),
  scope_no int not null,
  text text not null,
  tags text[] not null default '{}',
  source text,
  kind text not null default 'note',
  job_id uuid,
  created_by text not null default session_user,
  created_at timestamptz not null default perdure.db_now(),
  pinned_at timestamptz,
  archived_at timestamptz,
  superseded_by uuid,
  tokens int not null default 0,
  tokeniser text not null default '',  -- empty: its terms are not written yet
  changed bigint not null default 0,  -- the version of its scope at its last change
  constraint memory_entries_id unique (tenant_id, id),
  constraint memory_entries_text check (length(text) between 1 and 20000),
  constraint memory_entries_tokens check (tokens >= 0)
);
create index memory_entries_changed on perdure.memory_entries (scope_no, changed, no);
create index memory_entries_list on perdure.memory_entries (scope_no, no);
create index memory_entries_superseded on perdure.memory_entries (superseded_by) where superseded_by is not null;
create index memory_entries_job on perdure.memory_entries (job_id) where job_id is not null;

create table perdure.memory_terms (
  scope_no int not null,
  term text collate "C" not null,
  entry_no bigint not null,
  count int not null,
  length int not null,  -- the sum of the counts of its entry
  -- a search reads this index alone: the rows of a term are all over the table
  primary key (scope_no, term, entry_no) include (count, length)
);

create table perdure.memory_vectors (
  entry_no bigint primary key,
  embedder text not null,
  vector bytea not null,  -- 32-bit floats, the least significant byte first
  constraint memory_vectors_vector check (length(vector) > 0 and length(vector) % 4 = 0)
);

-- Roles that may write the other tables may write these.
do $$
declare
  r record;
begin
  for r in select case a.grantee when 0 then 'public' else a.grantee::regrole::text end as who,
      string_agg(a.privilege_type, ', ') as rights
    from pg_catalog.pg_class c cross join pg_catalog.aclexplode(c.relacl) a
    where c.oid = 'perdure.job_claims'::regclass and a.grantee <> c.relowner
      and a.privilege_type in ('SELECT', 'INSERT', 'UPDATE', 'DELETE') group by a.grantee loop
    execute format('grant %s on perdure.memory_scopes, perdure.memory_entries, perdure.memory_terms, perdure.memory_vectors to %s',
      r.rights, r.who);
  end loop;
end $$;

comment on table perdure.memory_scopes is 'Whose entries of long-term memory are.';
comment on column perdure.memory_scopes.no is 'Its number in the other tables.';
comment on column perdure.memory_scopes.tenant_id is 'Whose it is.';
comment on column perdure.memory_scopes.scope is 'job:<id>, agent:<id>, user:<id>, project:<name> or tenant.';
comment on column perdure.memory_scopes.version is 'Counts the changes of its entries.';
comment on column perdure.memory_scopes.entries is 'Entries that are found.';
comment on column perdure.memory_scopes.tokens is 'The sum of their lengths.';
comment on table perdure.memory_entries is 'Long-term memory. Entries are archived and superseded, never deleted.';
comment on column perdure.memory_entries.no is 'Its number in the other tables; later ones are higher.';
comment on column perdure.memory_entries.tenant_id is 'Whose it is.';
comment on column perdure.memory_entries.id is 'Unique within the tenant.';
comment on column perdure.memory_entries.scope_no is 'Its scope.';
comment on column perdure.memory_entries.text is 'What was written down.';
comment on column perdure.memory_entries.tags is 'Words by which searches are narrowed.';
comment on column perdure.memory_entries.source is 'Where it is from, in words of its writer.';
comment on column perdure.memory_entries.kind is 'What it is, in a word of its writer.';
comment on column perdure.memory_entries.job_id is 'The job that wrote it.';
comment on column perdure.memory_entries.created_by is 'Who wrote it.';
comment on column perdure.memory_entries.created_at is 'When it was written.';
comment on column perdure.memory_entries.pinned_at is 'Since when it counts more than others.';
comment on column perdure.memory_entries.archived_at is 'Since when it is not found.';
comment on column perdure.memory_entries.superseded_by is 'The entry that replaced it.';
comment on column perdure.memory_entries.tokens is 'The sum of the counts of its terms.';
comment on column perdure.memory_entries.tokeniser is 'The version of what made its terms.';
comment on column perdure.memory_entries.changed is 'The version of its scope at its last change.';
comment on table perdure.memory_terms is 'The terms of the entries that are found.';
comment on column perdure.memory_terms.scope_no is 'The scope of the entry.';
comment on column perdure.memory_terms.term is 'A word, or one or two CJK characters.';
comment on column perdure.memory_terms.entry_no is 'The entry.';
comment on column perdure.memory_terms.count is 'How often it is in the entry.';
comment on column perdure.memory_terms.length is 'The sum of the counts of the entry.';
comment on table perdure.memory_vectors is 'The vectors of the entries that are found.';
comment on column perdure.memory_vectors.entry_no is 'The entry.';
comment on column perdure.memory_vectors.embedder is 'What made it; vectors of different ones are not compared.';
comment on column perdure.memory_vectors.vector is '32-bit floats, the least significant byte first.';
