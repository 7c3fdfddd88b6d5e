-- Rates of concurrency keys. See rates.py, and the twin's functions in its migration 0019; here the writer has the file for itself.

-- name: starts_left
-- only: sqlite the twin is a function. How many jobs of a key may start now; no row: it has no rate.
select max(0, coalesce(r.by_hand, r.per_minute) - coalesce((select sum(s.number) from key_starts s
  where s.tenant_id = :tenant_id and s.key = :key and s.at > :now - 60000000), 0)) as number
from rates r where r.tenant_id = :tenant_id and r.key = :key and coalesce(r.by_hand, r.per_minute) is not null

-- name: add_starts
-- only: sqlite the twin is a part of a function
insert into key_starts (tenant_id, key, at, number) values (:tenant_id, :key, :now, :number)

-- name: drop_old_starts
-- only: sqlite the twin is a part of a function. Of any key: one of which no job starts again would keep its rows.
delete from key_starts where rowid in (select o.rowid from key_starts o
  where o.tenant_id = :tenant_id and o.at < :now - 120000000 order by o.at limit 100)

-- name: wake_at_next_start
-- only: sqlite the twin is a function. As soon as so few starts lie in the last minute that one more fits.
update rates set wake_at = coalesce((select max(w.at) + 60000000 from (
    select s.at, sum(s.number) over (order by s.at desc) as since from key_starts s
    where s.tenant_id = :tenant_id and s.key = :key and s.at > :now - 60000000) w
  where w.since >= coalesce(rates.by_hand, rates.per_minute)), :now)
where tenant_id = :tenant_id and key = :key

-- name: wake_rates
-- only: sqlite the twin is a part of a function. Keys whose held jobs may go on.
update rates set wake_at = null where tenant_id = :tenant_id and wake_at <= :now returning key
