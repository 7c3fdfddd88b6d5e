-- Rules: decisions about tools that hold for later calls as well.

-- name: insert_rule
insert into approval_rules (id, tenant_id, tool, scope, verdict, approval_id, created_at, created_by, created_via, reason, expires_at)
values (:id, :tenant_id, :tool, :scope, :verdict, :approval_id, :now, :by, :via, :reason, :expires_at)
on conflict (id) do nothing

-- name: get_rule
select * from approval_rules where id = :rule_id and tenant_id = :tenant_id

-- name: find_rule
select id from approval_rules where substr(replace(id, '-', ''), -length(:suffix)) = :suffix and tenant_id = :tenant_id
order by id limit 2

-- name: rule_for
-- The rule that decides a call: one that denies comes first, then the newest.
select * from approval_rules where tenant_id = :tenant_id and tool = :tool
  and scope in ('tenant', 'user:' || :user_id, 'job:' || :job_id, (select 'agent:' || j.agent_id from jobs j where j.id = :job_id),
    (select 'session:' || j.agent_id || '/' || j.session_id from jobs j where j.id = :job_id))
  and revoked_at is null and (expires_at is null or expires_at > (select now from clock))
order by verdict = 'deny' desc, id desc limit 1

-- name: list_rules
-- The newest first.
select * from approval_rules where tenant_id = :tenant_id and id < coalesce(:before, 'g')
  and (:tool is null or tool = :tool) and (:scope is null or scope = :scope)
  and (not :only_live or (revoked_at is null and (expires_at is null or expires_at > (select now from clock))))
order by id desc limit :limit

-- name: revoke_rule
update approval_rules set revoked_at = :now, revoked_by = :by, revoked_via = :via, revoked_reason = :reason
where id = :rule_id and tenant_id = :tenant_id and revoked_at is null
