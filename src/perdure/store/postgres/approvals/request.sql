-- Asking: by the worker that holds the job.

-- name: insert_approval
insert into perdure.approvals (id, tenant_id, job_id, key, kind, title, payload, payload_digest, requester, assignees,
  on_expiry, on_deny, token_hash, expires_at)
values (:approval_id, :tenant_id, :job_id, :key, :kind, :title, :payload::text::json, :payload_digest, :requester,
  :assignees, :on_expiry, :on_deny, :token_hash, perdure.db_now() + :expires_in::float8 * interval '1 second')
returning expires_at

-- name: approval_of_key
select id from perdure.approvals where job_id = :job_id and kind = :kind and key = :key

-- name: replace_token
update perdure.approvals set token_hash = :token_hash where id = :approval_id
