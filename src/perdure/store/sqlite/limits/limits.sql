-- The limits of concurrency keys, as operators see and set them.

-- name: list_limits
select v.scope as key, v.max_concurrent as max, v.current_concurrent as in_use, l.key is not null as set_by_hand,
  (select count(*) from (select 1 from job_queue q where q.tenant_id = v.tenant_id and q.concurrency_key = v.scope and q.held = 1
    limit :most)) as waiting
from concurrency_limits v left join limits l on l.tenant_id = v.tenant_id and l.key = v.scope
where v.tenant_id = :tenant_id order by v.scope limit :limit

-- name: get_limit
select coalesce(l.max, k.max, (select q.max_concurrent from job_queue q where q.tenant_id = :tenant_id
    and q.concurrency_key = :key and q.held = 1 limit 1)) as max, coalesce(k.leases, 0) as in_use, l.key is not null as set_by_hand,
  (select count(*) from (select 1 from job_queue q where q.tenant_id = :tenant_id and q.concurrency_key = :key and q.held = 1
    limit :most)) as waiting
from (select max(c.max_concurrent) as max, count(*) as leases from job_claims c
  where c.tenant_id = :tenant_id and c.concurrency_key = :key) k
left join limits l on l.tenant_id = :tenant_id and l.key = :key

-- name: slot_holders
select job_id from job_claims where tenant_id = :tenant_id and concurrency_key = :key order by claimed_at, job_id limit :limit

-- name: set_limit
insert into limits (tenant_id, key, max, set_at, set_by) values (:tenant_id, :key, :max, :now, :by)
on conflict (tenant_id, key) do update set max = excluded.max, set_at = excluded.set_at, set_by = excluded.set_by

-- name: unset_limit
delete from limits where tenant_id = :tenant_id and key = :key returning key

-- name: get_rate
-- No row: the key has no rate.
select coalesce(r.by_hand, r.per_minute) as per_minute, r.by_hand is not null as by_hand,
  coalesce((select sum(s.number) from key_starts s where s.tenant_id = :tenant_id and s.key = :key
    and s.at > (select now from clock) - 60000000), 0) as started,
  (select max(w.at) + 60000000 from (
    select s.at, sum(s.number) over (order by s.at desc) as since from key_starts s
    where s.tenant_id = :tenant_id and s.key = :key and s.at > (select now from clock) - 60000000) w
  where w.since >= coalesce(r.by_hand, r.per_minute)) as next_at
from rates r where r.tenant_id = :tenant_id and r.key = :key and coalesce(r.by_hand, r.per_minute) is not null

-- name: list_rates
select r.key, coalesce(r.by_hand, r.per_minute) as per_minute, r.by_hand is not null as by_hand,
  coalesce((select sum(s.number) from key_starts s where s.tenant_id = r.tenant_id and s.key = r.key
    and s.at > (select now from clock) - 60000000), 0) as started
from rates r where r.tenant_id = :tenant_id and coalesce(r.by_hand, r.per_minute) is not null order by r.key limit :limit

-- name: set_rate
insert into rates (tenant_id, key, by_hand, set_at, set_by) values (:tenant_id, :key, :per_minute, :now, :by)
on conflict (tenant_id, key) do update set by_hand = excluded.by_hand, set_at = excluded.set_at, set_by = excluded.set_by

-- name: say_rate
-- What code says. Nothing is written where it says the same as before.
insert into rates as r (tenant_id, key, per_minute, set_at, set_by) values (:tenant_id, :key, :per_minute, :now, 'code')
on conflict (tenant_id, key) do update set per_minute = excluded.per_minute
where r.per_minute is not excluded.per_minute
