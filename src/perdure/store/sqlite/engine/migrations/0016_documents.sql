-- Documents: what the adapters of other libraries keep. The same table and columns as on PostgreSQL; see there.

create table documents (
  tenant_id text not null default 'default',
  collection text not null check (length(collection) between 1 and 100),
  key text not null check (length(cast(key as blob)) between 1 and 2000),
  value text not null check (json_valid(value)),
  body blob,
  created_at integer not null,
  updated_at integer not null,
  primary key (tenant_id, collection, key)
) strict;
