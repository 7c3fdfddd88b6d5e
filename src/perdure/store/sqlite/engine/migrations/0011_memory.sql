-- Long-term memory. The same tables and columns as on PostgreSQL; see there.

create table memory_scopes (
  no integer primary key,
  tenant_id text not null default 'default',
  scope text not null check (scope = 'tenant' or scope glob 'job:?*' or scope glob 'agent:?*' or scope glob 'user:?*'
    or scope glob 'project:?*'),
  version integer not null default 0,
  entries integer not null default 0 check (entries >= 0),
  tokens integer not null default 0 check (tokens >= 0),
  unique (tenant_id, scope)
) strict;

create table memory_entries (
  no integer primary key autoincrement,
  tenant_id text not null default 'default',
  id text not null,
  scope_no integer not null,
  text text not null check (length(text) between 1 and 20000),
  tags text not null default '[]' check (json_valid(tags)),
  source text,
  kind text not null default 'note',
  job_id text,
  created_by text not null default 'sql',
  created_at integer not null,
  pinned_at integer,
  archived_at integer,
  superseded_by text,
  tokens integer not null default 0 check (tokens >= 0),
  tokeniser text not null default '',
  changed integer not null default 0,
  unique (tenant_id, id)
) strict;
create index memory_entries_changed on memory_entries (scope_no, changed);
create index memory_entries_list on memory_entries (scope_no, no);
create index memory_entries_superseded on memory_entries (superseded_by) where superseded_by is not null;
create index memory_entries_job on memory_entries (job_id) where job_id is not null;

create table memory_terms (
  scope_no integer not null,
  term text not null,
  entry_no integer not null,
  count integer not null,
  length integer not null,
  primary key (scope_no, term, entry_no)
) strict, without rowid;

create table memory_vectors (
  entry_no integer primary key,
  embedder text not null,
  vector blob not null check (length(vector) > 0 and length(vector) % 4 = 0)
) strict;
