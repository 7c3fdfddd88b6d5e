-- What commits together with the events of an attempt, or with its end: see effects.py.

-- name: patch_state
-- Adds tokens and cost; null leaves the rest as it is.
insert into job_state (job_id, checkpoint, progress, progress_text, tokens, cost, updated_at)
values (:job_id, :checkpoint, :progress, :progress_text, :tokens, :cost, :now)
on conflict (job_id) do update set checkpoint = coalesce(excluded.checkpoint, job_state.checkpoint),
  progress = coalesce(excluded.progress, job_state.progress),
  progress_text = coalesce(excluded.progress_text, job_state.progress_text),
  tokens = job_state.tokens + excluded.tokens, cost = add_cost(job_state.cost, excluded.cost), updated_at = excluded.updated_at

-- name: open_wait
-- Opened again for the same subject, a wait keeps its answer.
insert into job_waits as w (job_id, key, kind, subject_id, until, opened_at)
values (:job_id, :key, :kind, :subject_id, :until, :now)
on conflict (job_id, kind, key) do update set subject_id = excluded.subject_id, until = excluded.until,
  answered_at = case when w.subject_id is excluded.subject_id then w.answered_at end

-- name: close_waits
delete from job_waits where job_id = :job_id and kind = :kind and key = :key

-- name: add_tool_run
insert into tool_runs (job_id, tenant_id, id, attempt, tool, account_id, worker_id, started_at, finished_at, exit_code, class, detail, message, stdout, stderr, output_files, tokens_in, tokens_out, tokens_cached, cost, latency_ms, session_id, final_text, sandbox)
values (:job_id, :tenant_id, :id, :attempt, :tool, :account_id, :worker_id, :started_at, :finished_at, :exit_code, :class, :detail, :message, :stdout, :stderr, :output_files, :tokens_in, :tokens_out, :tokens_cached, :cost, :latency_ms, :session_id, :final_text, :sandbox)
on conflict (job_id, attempt) do nothing
