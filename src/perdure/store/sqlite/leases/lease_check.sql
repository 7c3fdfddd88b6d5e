-- Every write of a worker looks first whether its lease is the live one. Nothing can change that before the commit, because the
-- running transaction has the file for itself.

-- name: live_claims
-- only: sqlite the twin checks the lease in the statement that writes; ids: JSON array. One JSON array of arrays.
select json_group_array(json_array(k.job_id, k.tenant_id, k.worker_id, k.attempt, k.version, k.cancel_note))
from json_each(:ids) e cross join job_claims k on k.job_id = e.value where k.expires_at > :now

-- name: held_heads
-- only: sqlite live_claims of one holder, as one JSON object: the heads of their logs; ids: JSON array
select json_group_object(k.job_id, k.version) from json_each(:ids) e cross join job_claims k on k.job_id = e.value
where k.worker_id = :worker_id and k.attempt = :attempt and k.expires_at > :now and k.tenant_id = :tenant_id
