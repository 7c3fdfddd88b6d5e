-- The working memory of pruned jobs. The same table and columns as on PostgreSQL; see there.

create table pruned_memory (
  job_id text not null,
  version integer not null,
  tenant_id text not null default 'default',
  created_at integer not null,
  attempt integer,
  event_id text,
  type text not null,
  payload text not null check (json_valid(payload)),
  primary key (job_id, version)
) strict, without rowid;
