-- Reruns are found by the job that they were made from.

create index jobs_rerun on perdure.jobs (origin_id, id) where origin_kind = 'rerun';
-- The rerun of a dead job takes its idempotency key over, and nothing else of the old one changes.
create function perdure.jobs_key_released() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  new.updated_at := old.updated_at;
  return new;
end $$;
create trigger jobs_d_key before update of idempotency_key on perdure.jobs for each row
  when (old.finished_at is not null and old.idempotency_key is not null and new.idempotency_key is null)
  execute function perdure.jobs_key_released();

comment on column perdure.jobs.idempotency_key is 'The same key, kind and payload of a tenant is one job; a rerun takes that of a dead job over.';
