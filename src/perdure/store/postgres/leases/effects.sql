-- What commits together with the events of an attempt, or with its end: see effects.py. Each parameter is an array with one element
-- for each row, named as the column. For `any (array[x])` see record.sql.

-- name: patch_state
insert into perdure.job_state (job_id, checkpoint, progress, progress_text, tokens, cost)
select job_id, checkpoint::json, progress, progress_text, tokens, cost
from unnest(:job_id::uuid[], :checkpoint::text[], :progress::float8[], :progress_text::text[], :tokens::bigint[], :cost::numeric[])
  u(job_id, checkpoint, progress, progress_text, tokens, cost)
on conflict (job_id) do update set checkpoint = coalesce(excluded.checkpoint, job_state.checkpoint),
  progress = coalesce(excluded.progress, job_state.progress),
  progress_text = coalesce(excluded.progress_text, job_state.progress_text),
  tokens = job_state.tokens + excluded.tokens, cost = job_state.cost + excluded.cost, updated_at = perdure.db_now()

-- name: open_wait
-- Opened again for the same subject, a wait keeps its answer.
insert into perdure.job_waits as w (job_id, key, kind, subject_id, until)
select * from unnest(:job_id::uuid[], :key::text[], :kind::text[], :subject_id::text[], :until::timestamptz[])
on conflict (job_id, kind, key) do update set subject_id = excluded.subject_id, until = excluded.until,
  answered_at = case when w.subject_id is not distinct from excluded.subject_id then w.answered_at end

-- name: close_waits
delete from perdure.job_waits w using unnest(:job_id::uuid[], :kind::text[], :key::text[]) u(job_id, kind, key)
where w.job_id = any (array[u.job_id]) and w.kind = u.kind and w.key = u.key
