-- The files of jobs: a row for each path, its content by hash, each content once for a tenant.

-- name: add_contents
-- What is there already is new again: drop_contents leaves it alone.
insert into perdure.file_contents (tenant_id, hash, size_bytes, content)
select :tenant_id, u.hash, u.size, u.content
from unnest(:hashes::text[], :sizes::bigint[], :contents::bytea[]) u(hash, size, content)
order by u.hash on conflict (tenant_id, hash) do update set created_at = perdure.db_now(),
  content = coalesce(file_contents.content, excluded.content)

-- name: add_files
insert into perdure.job_files (tenant_id, job_id, attempt, is_input, path, hash, size_bytes)
select :tenant_id, :job_id, :attempt, :is_input, u.path, u.hash, u.size
from unnest(:paths::text[], :hashes::text[], :sizes::bigint[]) u(path, hash, size)
on conflict (job_id, is_input, attempt, path) do update set hash = excluded.hash, size_bytes = excluded.size_bytes

-- name: hold_lease
-- only: postgres the twin looks at the lease, and nothing can change it before the commit
-- A row while the lease is live; it stays so until the end of the transaction.
select from perdure.job_claims where job_id = :job_id and attempt = :attempt and worker_id = :worker_id
  and tenant_id = :tenant_id and expires_at > perdure.db_now() for no key update

-- name: drop_inputs
delete from perdure.job_files where job_id = :job_id and tenant_id = :tenant_id and is_input

-- name: list_files
select id, path, is_input, attempt, hash, size_bytes from perdure.job_files where job_id = :job_id and tenant_id = :tenant_id
order by is_input desc, attempt, path

-- name: read_content
-- content: null if it is a blob.
select c.hash, c.content from perdure.job_files f join perdure.file_contents c on c.tenant_id = f.tenant_id and c.hash = f.hash
where f.job_id = :job_id and f.tenant_id = :tenant_id and f.is_input = :is_input and f.attempt = :attempt and f.path = :path

-- name: schema_made
-- When the first migration was applied: no two databases share it, unless one is a copy of the other.
select current_database() as name, applied_at as made from perdure.schema_migrations order by number limit 1

-- name: blobs_in_use
select hash from perdure.file_contents where tenant_id = :tenant_id and content is null and hash = any(:hashes::text[])

-- name: drop_strays
-- Files whose job was never stored: the process that enqueued it died in between.
delete from perdure.job_files f where f.tenant_id = :tenant_id and f.is_input and f.created_at < perdure.db_now() - interval '1 day'
  and not exists (select from perdure.jobs j where j.id = f.job_id)

-- name: drop_contents
-- Contents that no file has.
delete from perdure.file_contents c where c.tenant_id = :tenant_id and c.created_at < perdure.db_now() - interval '1 day'
  and not exists (select from perdure.job_files f where f.tenant_id = c.tenant_id and f.hash = c.hash)
returning c.hash
