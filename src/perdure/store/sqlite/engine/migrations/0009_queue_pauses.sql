-- Paused queues: no claim takes a job of one. The same table and columns as on PostgreSQL; see there.

create table queue_pauses (
  id text primary key,
  tenant_id text not null default 'default',
  queue text not null,
  lane text not null check (lane = case tenant_id when 'default' then queue else tenant_id || ':' || queue end),
  paused_at integer not null,
  paused_by text not null default 'sql',
  paused_via text,
  reason text,
  resumed_at integer,
  resumed_by text,
  resumed_via text,
  resumed_reason text,
  constraint queue_pauses_resumed check ((resumed_at is null) = (resumed_by is null))
) strict;
create unique index queue_pauses_open on queue_pauses (lane) where resumed_at is null;
create index queue_pauses_tenant on queue_pauses (tenant_id, id);
