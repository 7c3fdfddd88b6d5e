-- Rates: how many jobs of a concurrency key start in any minute. The same tables and columns as on PostgreSQL; see there. What are
-- functions there are statements of leases/rates.sql.

create table rates (
  tenant_id text not null default 'default',
  key text not null check (length(key) between 1 and 200),
  per_minute integer check (per_minute is null or per_minute >= 1),
  by_hand integer check (by_hand is null or by_hand >= 1),
  wake_at integer,
  set_at integer not null,
  set_by text not null default 'sql',
  primary key (tenant_id, key)
) strict, without rowid;
create index rates_wake on rates (tenant_id, wake_at) where wake_at is not null;

create table key_starts (
  tenant_id text not null,
  key text not null,
  at integer not null,
  number integer not null
) strict;
create index key_starts_key on key_starts (tenant_id, key, at);
create index key_starts_at on key_starts (tenant_id, at);

-- A rate that was set or changed: the jobs that it held are looked at again.
create trigger rates_set after insert on rates
begin
  insert into freed_slots (tenant_id, key) values (new.tenant_id, new.key) on conflict do nothing;
end;
create trigger rates_changed after update of per_minute, by_hand on rates
begin
  insert into freed_slots (tenant_id, key) values (new.tenant_id, new.key) on conflict do nothing;
end;
