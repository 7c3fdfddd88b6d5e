-- The accounts of coding CLIs. Where the dialect differs: time is a parameter.

-- name: add_account
-- No row: the id or the group name is taken.
insert into accounts (id, tenant_id, tool, group_name, name, env_vars, cred_ref, enabled, max_concurrency, dangerous, created_at, updated_at)
values (:id, :tenant_id, :tool, :group_name, :name, :env_vars, :cred_ref, :enabled, :max_concurrency, :dangerous, :now, :now)
on conflict do nothing returning id

-- name: list_accounts
select a.*, (select count(*) from job_claims k where k.tenant_id = a.tenant_id and k.account_id = a.id and k.expires_at > (select now from clock)) as used
from accounts a where a.tenant_id = :tenant_id order by a.tool, a.id

-- name: find_account
-- By its id, else by its group name.
select a.*, (select count(*) from job_claims k where k.tenant_id = a.tenant_id and k.account_id = a.id and k.expires_at > (select now from clock)) as used
from accounts a where a.tenant_id = :tenant_id and (a.id = :text or a.group_name = :text) order by a.id = :text desc limit 1

-- name: change_account
-- null leaves a column as it is; what enables an account forgets why it was disabled.
update accounts set enabled = coalesce(:enabled, enabled), max_concurrency = coalesce(:max_concurrency, max_concurrency),
  failed_probes = iif(coalesce(:enabled, 0), 0, failed_probes), updated_at = :now
where tenant_id = :tenant_id and id = :id returning *, 0 as used

-- name: park_account
-- A later end wins, so that of two runs that meet the limit the longer wait counts.
update accounts set parked_until = max(coalesce(parked_until, 0), :until), parked_reason = :reason, updated_at = :now
where tenant_id = :tenant_id and id = :id returning *, 0 as used

-- name: note_refused
update accounts set failed_probes = failed_probes + 1, enabled = enabled and failed_probes < 1, updated_at = :now
where tenant_id = :tenant_id and id = :id and enabled returning enabled

-- name: note_accepted
update accounts set failed_probes = 0 where tenant_id = :tenant_id and id = :id and failed_probes > 0

-- name: remove_account
delete from accounts where tenant_id = :tenant_id and id = :id returning id

-- name: accounts_of_tool
-- With the leases that have a slot, without that of a job.
select a.*, (select count(*) from job_claims k where k.tenant_id = a.tenant_id and k.account_id = a.id and k.expires_at > :now
    and k.job_id <> :job_id) as used
from accounts a where a.tenant_id = :tenant_id and a.tool = :tool order by a.id

-- name: account_of_lease
select k.account_id from job_claims k where k.job_id = :job_id and k.tenant_id = :tenant_id

-- name: give_account
update job_claims set account_id = :account_id where job_id = :job_id
