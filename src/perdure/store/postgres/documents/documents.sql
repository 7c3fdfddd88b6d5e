-- Documents: values under sorted keys, which the adapters of other libraries keep.

-- name: read_document
select key, value, body, created_at, updated_at from perdure.documents
where tenant_id = :tenant_id and collection = :collection and key = :key

-- name: first_documents
select key, value, body, created_at, updated_at from perdure.documents
where tenant_id = :tenant_id and collection = :collection and key >= :first and (:before::text is null or key < :before)
order by key limit :limit

-- name: last_documents
select key, value, body, created_at, updated_at from perdure.documents
where tenant_id = :tenant_id and collection = :collection and key >= :first and (:before::text is null or key < :before)
order by key desc limit :limit

-- name: put_document
insert into perdure.documents as d (tenant_id, collection, key, value, body, created_at, updated_at)
values (:tenant_id, :collection, :key, :value::text::json, :body::bytea, perdure.db_now(), perdure.db_now())
on conflict (tenant_id, collection, key) do update
  set value = excluded.value, body = excluded.body, updated_at = excluded.updated_at
  where not :keep::boolean

-- name: remove_documents
delete from perdure.documents
where tenant_id = :tenant_id and collection = :collection and key >= :first and (:before::text is null or key < :before)
returning key
