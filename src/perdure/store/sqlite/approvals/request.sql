-- Asking for an approval.

-- name: insert_approval
insert into approvals (id, tenant_id, job_id, key, kind, title, payload, payload_digest, requester, assignees, on_expiry,
  on_deny, token_hash, requested_at, expires_at)
values (:id, :tenant_id, :job_id, :key, :kind, :title, :payload, :payload_digest, :requester, :assignees, :on_expiry,
  :on_deny, :token_hash, :now, :expires_at)

-- name: approval_of_key
select id from approvals where job_id = :job_id and kind = :kind and key = :key

-- name: replace_token
update approvals set token_hash = :token_hash where id = :approval_id
