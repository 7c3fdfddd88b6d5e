-- What an attempt writes while it runs.

-- name: append_many
insert into job_events (job_id, version, created_at, attempt, event_id, type, payload)
values :rows(job_id, version, :now, attempt, event_id, type, payload)

-- name: advance_heads
-- The holder's heads follow its events; heads: JSON object of job ids and versions
update job_claims set version = e.value, started = 1, expires_at = min(:now + ttl, coalesce(ends_at, :now + ttl))
from json_each(:heads) e where job_id = e.key
