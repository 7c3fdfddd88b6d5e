-- The accounts of coding CLIs.

-- name: add_account
-- No row: the id or the group name is taken.
insert into perdure.accounts (id, tenant_id, tool, group_name, name, env_vars, cred_ref, enabled, max_concurrency, dangerous)
values (:id, :tenant_id, :tool, :group_name, :name, :env_vars::text::json, :cred_ref, :enabled, :max_concurrency, :dangerous)
on conflict do nothing returning id

-- name: list_accounts
select a.*, (select count(*) from perdure.job_claims k where k.tenant_id = a.tenant_id and k.account_id = a.id and k.expires_at > perdure.db_now())::int as used
from perdure.accounts a where a.tenant_id = :tenant_id order by a.tool, a.id

-- name: find_account
-- By its id, else by its group name.
select a.*, (select count(*) from perdure.job_claims k where k.tenant_id = a.tenant_id and k.account_id = a.id and k.expires_at > perdure.db_now())::int as used
from perdure.accounts a where a.tenant_id = :tenant_id and (a.id = :text or a.group_name = :text) order by a.id = :text desc limit 1

-- name: change_account
-- null leaves a column as it is; what enables an account forgets why it was disabled.
update perdure.accounts set enabled = coalesce(:enabled::bool, enabled), max_concurrency = coalesce(:max_concurrency::int, max_concurrency),
  failed_probes = case when :enabled::bool then 0 else failed_probes end, updated_at = perdure.db_now()
where tenant_id = :tenant_id and id = :id returning *, 0 as used

-- name: park_account
-- A later end wins, so that of two runs that meet the limit the longer wait counts.
update perdure.accounts set parked_until = greatest(parked_until, perdure.db_now() + :seconds::float8 * interval '1 second'),
  parked_reason = :reason, updated_at = perdure.db_now()
where tenant_id = :tenant_id and id = :id returning *, 0 as used

-- name: note_refused
-- A row where this disabled it.
with noted as (
  update perdure.accounts set failed_probes = failed_probes + 1, enabled = enabled and failed_probes < 1, updated_at = perdure.db_now()
  where tenant_id = :tenant_id and id = :id and enabled returning id, enabled
) select id from noted where not enabled

-- name: note_accepted
update perdure.accounts set failed_probes = 0 where tenant_id = :tenant_id and id = :id and failed_probes > 0

-- name: remove_account
delete from perdure.accounts where tenant_id = :tenant_id and id = :id returning id

-- name: accounts_of_tool
-- With the leases that have a slot, without that of a job.
select a.*, (select count(*) from perdure.job_claims k where k.tenant_id = a.tenant_id and k.account_id = a.id
    and k.expires_at > perdure.db_now() and k.job_id <> :job_id)::int as used
from perdure.accounts a where a.tenant_id = :tenant_id and a.tool = :tool order by a.id

-- name: account_of_lease
select k.account_id from perdure.job_claims k where k.job_id = :job_id and k.tenant_id = :tenant_id

-- name: time_of_transaction
-- only: postgres the twin is given the time
select perdure.db_now() as now

-- name: give_account
update perdure.job_claims set account_id = :account_id where job_id = :job_id and attempt = :attempt and worker_id = :worker_id
  and tenant_id = :tenant_id and expires_at > perdure.db_now() returning job_id
