-- Rates: how many jobs of a concurrency key start in any minute.
--
--   rates        per_minute as code says, by_hand as an operator has set it, which wins; wake_at: when jobs that are held because the
--                rate was used up may go on
--   key_starts   how many jobs of a key with a rate were claimed, and when: a row for each claim; the next claim of any key with a rate
--                deletes up to 100 that are older than two minutes
--
-- A key without a rate writes none of these. What counts or adds to key_starts has the lock of the key, see 0003. claim_limited,
-- release_key and release_held use them.

create table perdure.rates (
  tenant_id text not null default 'default',
  key text not null,
  per_minute int,
  by_hand int,
  wake_at timestamptz,
  set_at timestamptz not null default perdure.db_now(),
  set_by text not null default session_user,
  primary key (tenant_id, key),
  constraint rates_key check (length(key) between 1 and 200),
  constraint rates_per_minute check (per_minute >= 1),
  constraint rates_by_hand check (by_hand >= 1)
);
create index rates_wake on perdure.rates (tenant_id, wake_at) where wake_at is not null;

create table perdure.key_starts (
  tenant_id text not null,
  key text not null,
  at timestamptz not null default perdure.db_now(),
  number int not null
);
create index key_starts_key on perdure.key_starts (tenant_id, key, at);
create index key_starts_at on perdure.key_starts (tenant_id, at);

-- How many jobs of a key may start now; null: it has no rate.
create function perdure.starts_left(tenant text, its_key text) returns int language sql volatile set search_path = pg_catalog, pg_temp
as $$
  select greatest(0, coalesce(r.by_hand, r.per_minute) - coalesce((select sum(s.number) from perdure.key_starts s
    where s.tenant_id = tenant and s.key = its_key and s.at > perdure.db_now() - interval '1 minute'), 0))::int
  from perdure.rates r where r.tenant_id = tenant and r.key = its_key and coalesce(r.by_hand, r.per_minute) is not null
$$;

-- When the next job of a key may start: once so few starts lie in the last minute that one more fits. Null: now.
create function perdure.next_start(tenant text, its_key text) returns timestamptz language sql volatile
  set search_path = pg_catalog, pg_temp as $$
  select max(w.at) + interval '1 minute' from perdure.rates r cross join (
    select s.at, sum(s.number) over (order by s.at desc) as since from perdure.key_starts s
    where s.tenant_id = tenant and s.key = its_key and s.at > perdure.db_now() - interval '1 minute') w
  where r.tenant_id = tenant and r.key = its_key and w.since >= coalesce(r.by_hand, r.per_minute)
$$;

-- A rate that was set or changed: the jobs that it held are looked at again.
create function perdure.rate_changed() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into perdure.freed_slots (tenant_id, key) values (new.tenant_id, new.key);
  return null;
end $$;
create trigger rates_changed after insert or update of per_minute, by_hand on perdure.rates for each row
  execute function perdure.rate_changed();

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
    execute format('grant %s on perdure.rates, perdure.key_starts to %s', r.rights, r.who);
  end loop;
end $$;

comment on table perdure.rates is 'How many jobs of a concurrency key start in any minute: what was set by hand wins over code.';
comment on column perdure.rates.tenant_id is 'As in jobs.';
comment on column perdure.rates.key is 'The concurrency key.';
comment on column perdure.rates.per_minute is 'How many, as code says; null: any number.';
comment on column perdure.rates.by_hand is 'How many, as an operator has set it.';
comment on column perdure.rates.wake_at is 'When the jobs that are held because the rate was used up are looked at again.';
comment on column perdure.rates.set_at is 'When it was set.';
comment on column perdure.rates.set_by is 'By whom.';
comment on table perdure.key_starts is 'The last starts of jobs of concurrency keys that have a rate.';
comment on column perdure.key_starts.tenant_id is 'As in jobs.';
comment on column perdure.key_starts.key is 'The concurrency key.';
comment on column perdure.key_starts.at is 'When they were claimed.';
comment on column perdure.key_starts.number is 'How many jobs.';
