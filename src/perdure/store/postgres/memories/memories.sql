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
select no, scope_no, tags, kind, tokens, tokeniser, archived_at, superseded_by from perdure.memory_entries where tenant_id = :tenant_id and id = :id for update

-- name: count_memory
update perdure.memory_scopes set version = version + 1, entries = entries + :entries::int, tokens = tokens + :tokens::int
where no = :scope_no returning version

-- name: leave_memory
update perdure.memory_entries set archived_at = coalesce(:archived_at::timestamptz, perdure.db_now()),
  superseded_by = :superseded_by::uuid, changed = :changed where no = :no

-- name: name_newer_memory
update perdure.memory_entries set superseded_by = :superseded_by::uuid where no = :no

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
-- Of each no more than `most` are counted.
select s.no as scope_no, w.term, n.entries
from unnest(:scope_nos::int[]) s(no) cross join unnest(:terms::text[]) w(term)
cross join lateral (select count(*) as entries from (
  select from perdure.memory_terms t where t.scope_no = s.no and t.term = w.term limit :most) t) n

-- name: memory_sample
-- How many of the newest entries of a scope have each term.
with n as materialized (
  select no from perdure.memory_entries where scope_no = :scope_no and archived_at is null order by no desc limit :newest)
select w.term, count(*) as entries
from unnest(:terms::text[]) w(term) cross join lateral (select from perdure.memory_terms t
  where t.scope_no = :scope_no and t.term = w.term and t.entry_no = any (array(select no from n)) offset 0) t
group by w.term

-- name: memory_expansions
-- Goes from term to term, as a term has many rows. Of each no more than `counted` are counted.
with recursive found (word, scope_no, term, place) as (
  select w.word, s.no, (select t.term from perdure.memory_terms t
    where t.scope_no = s.no and t.term > w.word and t.term < w.word || chr(1114111) order by t.term limit 1), 1
  from unnest(:words::text[]) w(word) cross join unnest(:scope_nos::int[]) s(no)
  union all
  select f.word, f.scope_no, (select t.term from perdure.memory_terms t
    where t.scope_no = f.scope_no and t.term > f.term and t.term < f.word || chr(1114111) order by t.term limit 1), f.place + 1
  from found f where f.term is not null and f.place < :looked_at)
select f.word, f.term, sum(n.entries)::bigint as entries
from found f cross join lateral (select count(*) as entries from (
  select from perdure.memory_terms t where t.scope_no = f.scope_no and t.term = f.term limit :counted) t) n
where f.term is not null group by f.word, f.term

-- name: rank_memory_text
-- BM25. postings: scopes, terms, their weights, and how many of the newest entries that have it are read (null: all). Lateral with
-- offset 0, as statistics that are out of date would lead to a scan of all terms.
select t.entry_no as no, round(sum(p.weight * t.count * (:k1::float8 + 1)
  / (t.count + :k1 * (1 - :b::float8 + :b * t.length / :average::float8))) * 1000000)::bigint as score
from unnest(:scope_nos::int[], :terms::text[], :weights::float8[], :newest::int[]) p(scope_no, term, weight, newest)
cross join lateral (select t.entry_no, t.count, t.length from perdure.memory_terms t
  where t.scope_no = p.scope_no and t.term = p.term order by t.entry_no desc limit p.newest) t
group by t.entry_no order by 2 desc, 1 desc limit :limit

-- name: rank_memory_text_among
-- The same among these entries; all of them count.
select t.entry_no as no, round(sum(p.weight * t.count * (:k1::float8 + 1)
  / (t.count + :k1 * (1 - :b::float8 + :b * t.length / :average::float8))) * 1000000)::bigint as score
from unnest(:scope_nos::int[], :terms::text[], :weights::float8[]) p(scope_no, term, weight)
cross join lateral (select t.entry_no, t.count, t.length from perdure.memory_terms t
  where t.scope_no = p.scope_no and t.term = p.term and t.entry_no = any (:nos::bigint[]) offset 0) t
group by t.entry_no order by 2 desc, 1 desc limit :limit

-- name: rank_memory_text_filtered
-- The same as rank_memory_text, of entries that count.
with f as materialized (
  select t.entry_no as no, round(sum(p.weight * t.count * (:k1::float8 + 1)
    / (t.count + :k1 * (1 - :b::float8 + :b * t.length / :average::float8))) * 1000000)::bigint as score
  from unnest(:scope_nos::int[], :terms::text[], :weights::float8[], :newest::int[]) p(scope_no, term, weight, newest)
  cross join lateral (select t.entry_no, t.count, t.length from perdure.memory_terms t
    where t.scope_no = p.scope_no and t.term = p.term order by t.entry_no desc limit p.newest) t
  group by t.entry_no)
select f.no, f.score from f cross join lateral (select from perdure.memory_entries e where e.no = f.no and (:since::timestamptz is null or e.created_at >= :since) and (:kind::text is null or e.kind = :kind)
  and e.tags @> :tags::text[] offset 0) e
order by 2 desc, 1 desc limit :limit

-- name: matching_memories
-- The newest entries that count, of so many newest of each scope that have the label; without a label, by the time.
select e.no from unnest(:scope_nos::int[]) s(no) cross join lateral (
  (select t.entry_no as no from perdure.memory_terms t where t.scope_no = s.no and t.term = :label::text
    order by t.entry_no desc limit :newest::int)
  union all
  (select r.no from perdure.memory_entries r where :label is null and r.scope_no = s.no and r.created_at >= :since::timestamptz and r.archived_at is null
    order by r.created_at desc limit :newest)) t
join perdure.memory_entries e on e.no = t.no
where e.archived_at is null and (:since::timestamptz is null or e.created_at >= :since) and (:kind::text is null or e.kind = :kind)
  and e.tags @> :tags::text[] order by 1 desc

-- name: passing_memories
select e.no from unnest(:nos::bigint[]) n(no) cross join lateral (select e.no from perdure.memory_entries e
  where e.no = n.no and e.archived_at is null and (:since::timestamptz is null or e.created_at >= :since) and (:kind::text is null or e.kind = :kind)
  and e.tags @> :tags::text[] offset 0) e

-- name: changed_memory_vectors
-- The vectors of a scope's entries that changed after a place; null: the entry is not found, or its vectors are of another embedder.
select e.no, e.changed, coalesce(v.chunk, 0) as chunk, v.vector from perdure.memory_entries e
left join perdure.memory_vectors v on v.entry_no = e.no and v.embedder = :embedder and e.archived_at is null
where e.scope_no = :scope_no and (e.changed, e.no) >= (:version::bigint, :no::bigint)
  and (e.changed, e.no, coalesce(v.chunk, 0)) > (:version::bigint, :no::bigint, :chunk::int)
order by e.changed, e.no, 3 limit :limit

-- name: memory_standing
select no, created_at, pinned_at is not null as pinned from perdure.memory_entries
where tenant_id = :tenant_id and no = any (:nos::bigint[])

-- name: memories_by_no
select e.*, s.scope from perdure.memory_entries e join perdure.memory_scopes s on s.no = e.scope_no
where e.tenant_id = :tenant_id and e.no = any (:nos::bigint[])

-- name: superseded_memories
select e.*, s.scope from perdure.memory_entries e join perdure.memory_scopes s on s.no = e.scope_no
where e.tenant_id = :tenant_id and e.superseded_by = any (:ids::uuid[]) order by e.no

-- name: memories_after
-- tokeniser: null for all. embedder: null for any.
select e.*, s.scope from perdure.memory_entries e join perdure.memory_scopes s on s.no = e.scope_no
where e.tenant_id = :tenant_id and e.no > :after and (:scopes::text[] is null or s.scope = any (:scopes::text[]))
  and (:live::bool is null or (e.archived_at is null) = :live)
  and (:tokeniser::text is null or e.tokeniser <> :tokeniser
    or not exists (select from perdure.memory_vectors v where v.entry_no = e.no and (:embedder::text is null or v.embedder = :embedder)))
order by e.no limit :limit

-- name: known_memories
select id from perdure.memory_entries where tenant_id = :tenant_id and id = any (:ids::uuid[])
