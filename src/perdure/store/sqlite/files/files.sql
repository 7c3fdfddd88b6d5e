-- The files of jobs: a row for each path, its content by hash, each content once for a tenant.
-- Where the dialect differs: one row for each execution.

-- name: add_contents
-- What is there already is new again: drop_contents leaves it alone.
insert into file_contents (tenant_id, hash, size_bytes, content, created_at)
values (:tenant_id, :hash, :size, :content, :now)
on conflict (tenant_id, hash) do update set created_at = excluded.created_at,
  content = coalesce(file_contents.content, excluded.content)

-- name: add_files
insert into job_files (id, tenant_id, job_id, attempt, is_input, path, hash, size_bytes, created_at)
values (:id, :tenant_id, :job_id, :attempt, :is_input, :path, :hash, :size, :now)
on conflict (job_id, is_input, attempt, path) do update set hash = excluded.hash, size_bytes = excluded.size_bytes

-- name: drop_inputs
delete from job_files where job_id = :job_id and tenant_id = :tenant_id and is_input

-- name: list_files
select id, path, is_input, attempt, hash, size_bytes from job_files where job_id = :job_id and tenant_id = :tenant_id
order by is_input desc, attempt, path

-- name: read_content
-- content: null if it is a blob.
select c.hash, c.content from job_files f join file_contents c on c.tenant_id = f.tenant_id and c.hash = f.hash
where f.job_id = :job_id and f.tenant_id = :tenant_id and f.is_input = :is_input and f.attempt = :attempt and f.path = :path

-- name: schema_made
-- When the first migration was applied: no two databases share it, unless one is a copy of the other.
select applied_at as made from schema_migrations order by number limit 1

-- name: blobs_in_use
-- hashes: JSON array
select hash from file_contents where tenant_id = :tenant_id and content is null
  and hash in (select value from json_each(:hashes))

-- name: drop_strays
-- Files whose job was never stored: the process that enqueued it died in between.
delete from job_files where tenant_id = :tenant_id and is_input and created_at < :before
  and not exists (select 1 from jobs j where j.id = job_files.job_id)

-- name: drop_contents
-- Contents that no file has.
delete from file_contents where tenant_id = :tenant_id and created_at < :before
  and not exists (select 1 from job_files f where f.tenant_id = file_contents.tenant_id and f.hash = file_contents.hash)
