-- Documents: values under sorted keys, which the adapters of other libraries keep.

-- name: read_document
select key, value, body, created_at, updated_at from documents
where tenant_id = :tenant_id and collection = :collection and key = :key

-- name: first_documents
select key, value, body, created_at, updated_at from documents
where tenant_id = :tenant_id and collection = :collection and key >= :first and (:before is null or key < :before)
order by key limit :limit

-- name: last_documents
select key, value, body, created_at, updated_at from documents
where tenant_id = :tenant_id and collection = :collection and key >= :first and (:before is null or key < :before)
order by key desc limit :limit

-- name: put_document
insert into documents as d (tenant_id, collection, key, value, body, created_at, updated_at)
values (:tenant_id, :collection, :key, :value, :body, :now, :now)
on conflict (tenant_id, collection, key) do update
  set value = excluded.value, body = excluded.body, updated_at = excluded.updated_at
  where not :keep

-- name: remove_documents
delete from documents
where tenant_id = :tenant_id and collection = :collection and key >= :first and (:before is null or key < :before)
returning key
