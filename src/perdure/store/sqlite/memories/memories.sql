-- Long-term memory: entries, and searches in them. Writing is among the effects of leases.

-- name: get_memory
select e.*, s.scope from memory_entries e join memory_scopes s on s.no = e.scope_no where e.tenant_id = :tenant_id and e.id = :id

-- name: find_memories
select id from memory_entries where tenant_id = :tenant_id and replace(id, '-', '') like '%' || :suffix limit 2

-- name: list_memories
-- scopes: null for all.
select e.*, s.scope from memory_scopes s cross join memory_entries e on e.scope_no = s.no
where s.tenant_id = :tenant_id and (:scopes is null or s.scope in (select value from json_each(:scopes)))
  and (:live is null or (e.archived_at is null) = :live) and (:before is null or e.no < :before)
  and (:job_id is null or e.job_id = :job_id)
order by e.no desc limit :limit

-- name: pin_memory
update memory_entries set pinned_at = case when :pinned then coalesce(pinned_at, :now) end
where tenant_id = :tenant_id and id = :id returning no

-- name: memory_for_change
select no, scope_no, tags, kind, tokens, tokeniser, archived_at, superseded_by from memory_entries where tenant_id = :tenant_id and id = :id

-- name: count_memory
update memory_scopes set version = version + 1, entries = entries + :entries, tokens = tokens + :tokens where no = :scope_no
returning version

-- name: leave_memory
update memory_entries set archived_at = coalesce(:archived_at, :now), superseded_by = :superseded_by, changed = :changed where no = :no

-- name: name_newer_memory
update memory_entries set superseded_by = :superseded_by where no = :no

-- name: enter_memory
update memory_entries set archived_at = null, superseded_by = null, tokens = :tokens, tokeniser = :tokeniser, changed = :changed
where no = :no

-- name: drop_memory_terms
-- terms: null for all that it has, which reads all terms of its scope.
delete from memory_terms where scope_no = :scope_no and entry_no = :no
  and (:terms is null or term in (select value from json_each(:terms)))

-- name: drop_memory_vector
delete from memory_vectors where entry_no = :no

-- name: memory_scopes
-- scopes: null for all.
select no, scope, version, entries, tokens from memory_scopes
where tenant_id = :tenant_id and (:scopes is null or scope in (select value from json_each(:scopes))) order by scope

-- name: memory_frequencies
-- Of each no more than `most` are counted.
select s.value as scope_no, w.value as term, (select count(*) from (
    select 1 from memory_terms t where t.scope_no = s.value and t.term = w.value limit :most)) as entries
from json_each(:scope_nos) s cross join json_each(:terms) w

-- name: memory_sample
-- How many of the newest entries of a scope have each term.
with n as materialized (
  select no from memory_entries where scope_no = :scope_no and archived_at is null order by no desc limit :newest)
select w.value as term, count(*) as entries
from json_each(:terms) w cross join n
cross join memory_terms t on t.scope_no = :scope_no and t.term = w.value and t.entry_no = n.no
group by w.value

-- name: memory_expansions
-- Goes from term to term, as a term has many rows. Of each no more than `counted` are counted.
with recursive found (word, scope_no, term, place) as (
  select w.value, s.value, (select t.term from memory_terms t
    where t.scope_no = s.value and t.term > w.value and t.term < w.value || char(1114111) order by t.term limit 1), 1
  from json_each(:words) w cross join json_each(:scope_nos) s
  union all
  select f.word, f.scope_no, (select t.term from memory_terms t
    where t.scope_no = f.scope_no and t.term > f.term and t.term < f.word || char(1114111) order by t.term limit 1), f.place + 1
  from found f where f.term is not null and f.place < :looked_at)
select word, term, sum((select count(*) from (
  select 1 from memory_terms t where t.scope_no = f.scope_no and t.term = f.term limit :counted))) as entries
from found f where term is not null group by word, term

-- name: last_memory_unread
-- only: sqlite A limit cannot be a column here.
select entry_no as no from memory_terms where scope_no = :scope_no and term = :term order by entry_no desc limit 1 offset :newest

-- name: rank_memory_text
-- BM25. postings: arrays of a scope, a term, its weight, and the number of the newest entry of it that is not read.
with p as materialized (
  select json_extract(j.value, '$[0]') as scope_no, json_extract(j.value, '$[1]') as term, json_extract(j.value, '$[2]') as weight,
    json_extract(j.value, '$[3]') as unread
  from json_each(:postings) j)
select t.entry_no as no, cast(round(sum(p.weight * t.count * (:k1 + 1)
  / (t.count + :k1 * (1 - :b + :b * t.length / :average))) * 1000000) as integer) as score
from p cross join memory_terms t on t.scope_no = p.scope_no and t.term = p.term and t.entry_no > p.unread
group by t.entry_no order by 2 desc, 1 desc limit :limit

-- name: rank_memory_text_among
-- The same among these entries; all of them count.
with p as materialized (
  select json_extract(j.value, '$[0]') as scope_no, json_extract(j.value, '$[1]') as term, json_extract(j.value, '$[2]') as weight
  from json_each(:postings) j),
n as materialized (select value as no from json_each(:nos) order by 1)
select t.entry_no as no, cast(round(sum(p.weight * t.count * (:k1 + 1)
  / (t.count + :k1 * (1 - :b + :b * t.length / :average))) * 1000000) as integer) as score
from p cross join n cross join memory_terms t on t.scope_no = p.scope_no and t.term = p.term and t.entry_no = n.no
group by t.entry_no order by 2 desc, 1 desc limit :limit

-- name: rank_memory_text_filtered
-- The same as rank_memory_text, of entries that count.
with p as materialized (
  select json_extract(j.value, '$[0]') as scope_no, json_extract(j.value, '$[1]') as term, json_extract(j.value, '$[2]') as weight,
    json_extract(j.value, '$[3]') as unread
  from json_each(:postings) j),
f as materialized (
  select t.entry_no as no, cast(round(sum(p.weight * t.count * (:k1 + 1)
    / (t.count + :k1 * (1 - :b + :b * t.length / :average))) * 1000000) as integer) as score
  from p cross join memory_terms t on t.scope_no = p.scope_no and t.term = p.term and t.entry_no > p.unread
  group by t.entry_no)
select f.no, f.score from f cross join memory_entries e on e.no = f.no
where (:since is null or e.created_at >= :since) and (:kind is null or e.kind = :kind)
  and not exists (select 1 from json_each(:tags) g where g.value not in (select value from json_each(e.tags)))
order by 2 desc, 1 desc limit :limit

-- name: matching_memories
-- The entries that count, of so many newest ones that have the label.
select e.no from (select entry_no as no from memory_terms where scope_no = :scope_no and term = :label
  order by entry_no desc limit :newest) t
cross join memory_entries e on e.no = t.no
where e.archived_at is null and (:since is null or e.created_at >= :since) and (:kind is null or e.kind = :kind)
  and not exists (select 1 from json_each(:tags) g where g.value not in (select value from json_each(e.tags)))

-- name: recent_memories
-- only: sqlite One statement of PostgreSQL does both.
select e.no from (select no from memory_entries where scope_no = :scope_no and created_at >= :since and archived_at is null
  order by created_at desc limit :newest) t
cross join memory_entries e on e.no = t.no
where e.archived_at is null and (:since is null or e.created_at >= :since) and (:kind is null or e.kind = :kind)
  and not exists (select 1 from json_each(:tags) g where g.value not in (select value from json_each(e.tags)))

-- name: passing_memories
select e.no from json_each(:nos) n cross join memory_entries e on e.no = n.value
where e.archived_at is null and (:since is null or e.created_at >= :since) and (:kind is null or e.kind = :kind)
  and not exists (select 1 from json_each(:tags) g where g.value not in (select value from json_each(e.tags)))

-- name: changed_memory_vectors
-- The vectors of a scope's entries that changed after a place; null: the entry is not found, or its vectors are of another embedder.
select e.no, e.changed, coalesce(v.chunk, 0) as chunk, v.vector from memory_entries e
left join memory_vectors v on v.entry_no = e.no and v.embedder = :embedder and e.archived_at is null
where e.scope_no = :scope_no and (e.changed, e.no) >= (:version, :no)
  and (e.changed, e.no, coalesce(v.chunk, 0)) > (:version, :no, :chunk)
order by e.changed, e.no, 3 limit :limit

-- name: memory_standing
select e.no, e.created_at, e.pinned_at is not null as pinned from json_each(:nos) n cross join memory_entries e on e.no = n.value
where e.tenant_id = :tenant_id

-- name: memories_by_no
select e.*, s.scope from json_each(:nos) n cross join memory_entries e on e.no = n.value
cross join memory_scopes s on s.no = e.scope_no
where e.tenant_id = :tenant_id

-- name: superseded_memories
select e.*, s.scope from memory_entries e join memory_scopes s on s.no = e.scope_no
where e.tenant_id = :tenant_id and e.superseded_by in (select value from json_each(:ids)) order by e.no

-- name: memories_after
-- tokeniser: null for all. embedder: null for any.
select e.*, s.scope from memory_entries e cross join memory_scopes s on s.no = e.scope_no
where e.tenant_id = :tenant_id and e.no > :after and (:scopes is null or s.scope in (select value from json_each(:scopes)))
  and (:live is null or (e.archived_at is null) = :live)
  and (:tokeniser is null or e.tokeniser <> :tokeniser
    or not exists (select 1 from memory_vectors v where v.entry_no = e.no and (:embedder is null or v.embedder = :embedder)))
order by e.no limit :limit

-- name: known_memories
select id from memory_entries where tenant_id = :tenant_id and id in (select value from json_each(:ids))
