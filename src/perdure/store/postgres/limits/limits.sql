-- The limits of concurrency keys, as operators see and set them.

-- name: list_limits
select v.scope as key, v.max_concurrent as max, v.current_concurrent as in_use, l.key is not null as set_by_hand,
  (select count(*) from (select from perdure.job_queue q where q.tenant_id = v.tenant_id and q.concurrency_key = v.scope and q.held
    limit :most) w) as waiting
from perdure.concurrency_limits v left join perdure.limits l on l.tenant_id = v.tenant_id and l.key = v.scope
where v.tenant_id = :tenant_id order by v.scope limit :limit

-- name: get_limit
select coalesce(l.max, k.max, (select q.max_concurrent from perdure.job_queue q where q.tenant_id = :tenant_id
    and q.concurrency_key = :key and q.held limit 1)) as max, coalesce(k.leases, 0) as in_use, l.key is not null as set_by_hand,
  (select count(*) from (select from perdure.job_queue q where q.tenant_id = :tenant_id and q.concurrency_key = :key and q.held
    limit :most) w) as waiting
from (select max(c.max_concurrent) as max, count(*) as leases from perdure.job_claims c
  where c.tenant_id = :tenant_id and c.concurrency_key = :key) k
left join perdure.limits l on l.tenant_id = :tenant_id and l.key = :key

-- name: slot_holders
select job_id from perdure.job_claims where tenant_id = :tenant_id and concurrency_key = :key order by claimed_at, job_id limit :limit

-- name: set_limit
insert into perdure.limits (tenant_id, key, max, set_at, set_by) values (:tenant_id, :key, :max, perdure.db_now(), :by)
on conflict (tenant_id, key) do update set max = excluded.max, set_at = excluded.set_at, set_by = excluded.set_by

-- name: unset_limit
delete from perdure.limits where tenant_id = :tenant_id and key = :key returning key

-- name: get_rate
-- No row: the key has no rate.
select coalesce(r.by_hand, r.per_minute) as per_minute, r.by_hand is not null as by_hand,
  coalesce((select sum(s.number) from perdure.key_starts s where s.tenant_id = :tenant_id and s.key = :key
    and s.at > perdure.db_now() - interval '1 minute'), 0)::int as started,
  perdure.next_start(:tenant_id, :key) as next_at
from perdure.rates r where r.tenant_id = :tenant_id and r.key = :key and coalesce(r.by_hand, r.per_minute) is not null

-- name: list_rates
select r.key, coalesce(r.by_hand, r.per_minute) as per_minute, r.by_hand is not null as by_hand,
  coalesce((select sum(s.number) from perdure.key_starts s where s.tenant_id = r.tenant_id and s.key = r.key
    and s.at > perdure.db_now() - interval '1 minute'), 0)::int as started
from perdure.rates r where r.tenant_id = :tenant_id and coalesce(r.by_hand, r.per_minute) is not null order by r.key limit :limit

-- name: set_rate
insert into perdure.rates (tenant_id, key, by_hand, set_at, set_by) values (:tenant_id, :key, :per_minute, perdure.db_now(), :by)
on conflict (tenant_id, key) do update set by_hand = excluded.by_hand, set_at = excluded.set_at, set_by = excluded.set_by

-- name: say_rate
-- What code says. Nothing is written where it says the same as before.
insert into perdure.rates as r (tenant_id, key, per_minute, set_at, set_by) values (:tenant_id, :key, :per_minute, perdure.db_now(), 'code')
on conflict (tenant_id, key) do update set per_minute = excluded.per_minute
where r.per_minute is distinct from excluded.per_minute
