-- Long-term memory: entries, and searches in them. Writing is among the effects of leases.

-- name: get_memory
select e.*, s.scope from perdure.memory_entries e join perdure.memory_scopes s on s.no = e.scope_no
where e.tenant_id = :tenant_id and e.id = :id

-- name: find_memories
select id from perdure.memory_entries where tenant_id = :tenant_id and replace(id::text, '-', '') like '%' || :suffix::text limit 2

-- name: list_memories
-- scopes: null for all.
select e.*, s.scope from perdure.memory_scopes s join perdure.memory_entries e on e.scope_no = s.no
where s.tenant_id = :tenant_id and (:scopes::text[] is null or s.scope = any (:scopes::text[]))
  and (:live::bool is null or (e.archived_at is null) = :live) and (:before::bigint is null or e.no < :before)
  and (:job_id::uuid is null or e.job_id = :job_id)
order by e.no desc limit :limit

-- name: pin_memory
update perdure.memory_entries set pinned_at = case when :pinned::bool then coalesce(pinned_at, perdure.db_now()) end
where tenant_id = :tenant_id and id = :id returning no

-- name: lock_memory_scopes
-- only: postgres SQLite has one writer at a time. In the order in which writes lock them.
select s.no from perdure.memory_scopes s
where s.no in (select e.scope_no from perdure.memory_entries e where e.tenant_id = :tenant_id and e.id = any (:ids::uuid[]))
order by s.tenant_id, s.scope for update

-- name: memory_for_change
select no, scope_no, tokens, tokeniser, archived_at from perdure.memory_entries where tenant_id = :tenant_id and id = :id for update

-- name: count_memory
update perdure.memory_scopes set version = version + 1, entries = entries + :entries::int, tokens = tokens + :tokens::int
where no = :scope_no returning version

-- name: leave_memory
update perdure.memory_entries set archived_at = coalesce(:archived_at::timestamptz, perdure.db_now()),
  superseded_by = :superseded_by::uuid, changed = :changed where no = :no

-- name: enter_memory
update perdure.memory_entries set archived_at = null, superseded_by = null, tokens = :tokens, tokeniser = :tokeniser, changed = :changed
where no = :no

-- name: drop_memory_terms
-- terms: null for all that it has, which reads all terms of its scope.
delete from perdure.memory_terms where scope_no = :scope_no and entry_no = :no
  and (:terms::text is null or term in (select json_array_elements_text(:terms::json)))

-- name: drop_memory_vector
delete from perdure.memory_vectors where entry_no = :no

-- name: memory_scopes
-- scopes: null for all.
select no, scope, version, entries, tokens from perdure.memory_scopes
where tenant_id = :tenant_id and (:scopes::text[] is null or scope = any (:scopes::text[])) order by scope collate "C"

-- name: memory_frequencies
-- How many entries have each term. Lateral, as statistics that are out of date would lead to a scan of all terms.
select w.term, sum(n.entries)::bigint as entries
from unnest(:terms::text[]) w(term) cross join unnest(:scope_nos::int[]) s(no)
cross join lateral (select count(*) as entries from perdure.memory_terms t where t.scope_no = s.no and t.term = w.term) n
where n.entries > 0
group by w.term

-- name: memory_expansions
-- Longer words that begin like these, and how many entries have each.
select w.word, n.term, sum(n.entries)::bigint as entries
from unnest(:words::text[]) w(word) cross join unnest(:scope_nos::int[]) s(no)
cross join lateral (select t.term, count(*) as entries from perdure.memory_terms t
  where t.scope_no = s.no and t.term > w.word and t.term < w.word || chr(1114111) group by t.term) n
group by w.word, n.term

-- name: rank_memory_text
-- BM25.
select t.entry_no as no, round(sum(w.weight * t.count * (:k1::float8 + 1)
  / (t.count + :k1 * (1 - :b::float8 + :b * t.length / :average::float8))) * 1000000)::bigint as score
from unnest(:terms::text[], :weights::float8[]) w(term, weight) cross join unnest(:scope_nos::int[]) s(no)
cross join lateral (select t.entry_no, t.count, t.length from perdure.memory_terms t
  where t.scope_no = s.no and t.term = w.term offset 0) t
group by t.entry_no order by 2 desc, 1 desc limit :limit

-- name: rank_memory_text_filtered
-- The same among the entries that count.
select t.entry_no as no, round(sum(w.weight * t.count * (:k1::float8 + 1)
  / (t.count + :k1 * (1 - :b::float8 + :b * t.length / :average::float8))) * 1000000)::bigint as score
from unnest(:terms::text[], :weights::float8[]) w(term, weight) cross join unnest(:scope_nos::int[]) s(no)
cross join lateral (select t.entry_no, t.count, t.length from perdure.memory_terms t
  where t.scope_no = s.no and t.term = w.term offset 0) t
join perdure.memory_entries e on e.no = t.entry_no
where (:since::timestamptz is null or e.created_at >= :since) and (:kind::text is null or e.kind = :kind)
  and e.tags @> :tags::text[]
group by t.entry_no order by 2 desc, 1 desc limit :limit

-- name: filtered_memories
select e.no from perdure.memory_entries e
where e.scope_no = any (:scope_nos::int[]) and e.archived_at is null and (:since::timestamptz is null or e.created_at >= :since)
  and (:kind::text is null or e.kind = :kind) and e.tags @> :tags::text[]

-- name: changed_memory_vectors
-- The entries of a scope that changed after a version; without a vector: it is not found, or its vector is of another embedder.
select e.no, v.vector from perdure.memory_entries e
left join perdure.memory_vectors v on v.entry_no = e.no and v.embedder = :embedder and e.archived_at is null
where e.scope_no = :scope_no and e.changed > :after

-- name: memories_by_no
select e.*, s.scope from perdure.memory_entries e join perdure.memory_scopes s on s.no = e.scope_no
where e.tenant_id = :tenant_id and e.no = any (:nos::bigint[])

-- name: superseded_memories
select e.*, s.scope from perdure.memory_entries e join perdure.memory_scopes s on s.no = e.scope_no
where e.tenant_id = :tenant_id and e.superseded_by = any (:ids::uuid[]) order by e.no

-- name: memories_after
-- without_tokeniser, without_embedder: null for all.
select e.*, s.scope from perdure.memory_entries e join perdure.memory_scopes s on s.no = e.scope_no
where e.tenant_id = :tenant_id and e.no > :after and (:scopes::text[] is null or s.scope = any (:scopes::text[]))
  and (:live::bool is null or (e.archived_at is null) = :live)
  and (:tokeniser::text is null or e.tokeniser <> :tokeniser
    or not exists (select from perdure.memory_vectors v where v.entry_no = e.no and v.embedder = :embedder::text))
order by e.no limit :limit

-- name: known_memories
select id from perdure.memory_entries where tenant_id = :tenant_id and id = any (:ids::uuid[])
