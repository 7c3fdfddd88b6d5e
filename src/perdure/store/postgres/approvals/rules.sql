-- Rules: decisions about tools that hold for later calls as well.

-- name: insert_rule
insert into perdure.approval_rules (id, tenant_id, tool, scope, verdict, approval_id, created_at, created_by, created_via, reason,
  expires_at)
values (:id, :tenant_id, :tool, :scope, :verdict, :approval_id, perdure.db_now(), :by, :via, :reason,
  perdure.db_now() + :expires_in::float8 * interval '1 second')
on conflict (id) do nothing

-- name: get_rule
select * from perdure.approval_rules where id = :rule_id and tenant_id = :tenant_id

-- name: find_rule
select id from perdure.approval_rules
where right(replace(id::text, '-', ''), length(:suffix)) = :suffix and tenant_id = :tenant_id order by id limit 2

-- name: rule_for
-- The rule that decides a call: one that denies comes first, then the newest.
select * from perdure.approval_rules where tenant_id = :tenant_id and tool = :tool
  and scope = any (array['tenant', 'user:' || :user_id::text, 'job:' || :job_id::uuid::text,
    (select 'agent:' || j.agent_id from perdure.jobs j where j.id = :job_id),
    (select 'session:' || j.agent_id || '/' || j.session_id from perdure.jobs j where j.id = :job_id)])
  and revoked_at is null and (expires_at is null or expires_at > perdure.db_now())
order by verdict = 'deny' desc, id desc limit 1

-- name: list_rules
-- The newest first.
select * from perdure.approval_rules where tenant_id = :tenant_id and (:before::uuid is null or id < :before)
  and (:tool::text is null or tool = :tool) and (:scope::text is null or scope = :scope)
  and (not :only_live::bool or (revoked_at is null and (expires_at is null or expires_at > perdure.db_now())))
order by id desc limit :limit

-- name: revoke_rule
update perdure.approval_rules set revoked_at = perdure.db_now(), revoked_by = :by, revoked_via = :via, revoked_reason = :reason
where id = :rule_id and tenant_id = :tenant_id and revoked_at is null
