-- Vectors of long-term memory as pgvector has them, where the extension is. `memory_vectors` stays what is stored: this is a copy that
-- triggers keep, so every process writes it, also one that does not know of it.

-- name: pgvectors_state
-- only: postgres SQLite has no pgvector.
-- wanted: the extension is there or can be asked for. whole: searches use the copy.
select exists (select from pg_available_extensions where name = 'vector') as wanted,
  to_regprocedure('perdure.nearest_memories(int[], text, text, bigint[], int)') is not null as whole

-- name: make_pgvectors
-- only: postgres SQLite has no pgvector.
-- Without the right to do so nothing is made, and nothing raised.
do $make$
declare
  place text;
  owner text;
  r record;
begin
  perform pg_advisory_xact_lock(hashtextextended('perdure.memory_pgvectors', 0));
  if to_regclass('perdure.memory_pgvectors') is not null then
    return;
  end if;
  begin
    if not exists (select from pg_extension where extname = 'vector') then
      create extension vector schema public;
    end if;
    select quote_ident(n.nspname) into place from pg_extension e join pg_namespace n on n.oid = e.extnamespace where e.extname = 'vector';
    execute format('create table perdure.memory_pgvectors (scope_no int not null, entry_no bigint not null, chunk int not null, '
      'embedder text not null, vector %s.vector not null, primary key (entry_no, chunk))', place);
    select quote_ident(pg_get_userbyid(relowner)) into owner from pg_class where oid = 'perdure.memory_vectors'::regclass;
    execute format('alter table perdure.memory_pgvectors owner to %s', owner);
    create index memory_pgvectors_scope on perdure.memory_pgvectors (scope_no);
    comment on table perdure.memory_pgvectors is 'A copy of memory_vectors for pgvector.';
    for r in select case a.grantee when 0 then 'public' else a.grantee::regrole::text end as who,
        string_agg(a.privilege_type, ', ') as rights
      from pg_catalog.pg_class c cross join pg_catalog.aclexplode(c.relacl) a
      where c.oid = 'perdure.memory_vectors'::regclass and a.grantee <> c.relowner
        and a.privilege_type in ('SELECT', 'INSERT', 'UPDATE', 'DELETE') group by a.grantee loop
      execute format('grant %s on perdure.memory_pgvectors to %s', r.rights, r.who);
    end loop;
    create function perdure.floats_of(b bytea) returns real[] language sql immutable strict set search_path = pg_catalog, pg_temp as $sql$
      select array_agg((case when e = 0 and m = 0 then 0::float8 when e = 0 then s * m * 2::float8 ^ (-149)
        else s * (m + 8388608) * 2::float8 ^ (e - 150) end)::real order by i)
      from (select i, 1 - 2 * (x >> 31) as s, (x >> 23) & 255 as e, x & 8388607 as m from (
        select i, get_byte(b, 4 * i) + (get_byte(b, 4 * i + 1) << 8) + (get_byte(b, 4 * i + 2) << 16)
          + (get_byte(b, 4 * i + 3)::bigint << 24) as x from generate_series(0, length(b) / 4 - 1) i) bits) parts
    $sql$;
    execute format($sql$
      create function perdure.copy_memory_vector() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $f$
      begin
        if tg_op <> 'INSERT' then
          delete from perdure.memory_pgvectors where entry_no = old.entry_no and chunk = old.chunk;
        end if;
        if tg_op <> 'DELETE' then
          insert into perdure.memory_pgvectors (scope_no, entry_no, chunk, embedder, vector)
          select e.scope_no, new.entry_no, new.chunk, new.embedder, perdure.floats_of(new.vector)::%s.vector
          from perdure.memory_entries e where e.no = new.entry_no
          on conflict (entry_no, chunk) do nothing;
        end if;
        return null;
      end $f$
    $sql$, place);
    create trigger memory_vectors_copied after insert or update or delete on perdure.memory_vectors
      for each row execute function perdure.copy_memory_vector();
  exception when insufficient_privilege or undefined_file or feature_not_supported or invalid_schema_name then
    return;
  end;
end $make$

-- name: pgvectors_made
-- only: postgres SQLite has no pgvector.
select quote_ident(n.nspname) as place from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'vector'
join pg_type t on t.oid = a.atttypid join pg_namespace n on n.oid = t.typnamespace
where c.oid = to_regclass('perdure.memory_pgvectors')

-- name: fill_pgvectors
-- only: postgres SQLite has no pgvector.
-- A page after a place, and the place of its last row. The lock keeps what is copied from being deleted meanwhile.
with p as materialized (select v.entry_no, v.chunk, v.embedder, v.vector from perdure.memory_vectors v
    where (v.entry_no, v.chunk) > (:no::bigint, :chunk::int) order by v.entry_no, v.chunk limit :limit for key share),
  i as (insert into perdure.memory_pgvectors (scope_no, entry_no, chunk, embedder, vector)
    select e.scope_no, p.entry_no, p.chunk, p.embedder, perdure.floats_of(p.vector) from p join perdure.memory_entries e on e.no = p.entry_no
    on conflict (entry_no, chunk) do nothing)
select entry_no as no, chunk from p order by entry_no desc, chunk desc limit 1

-- name: finish_pgvectors
-- only: postgres SQLite has no pgvector.
-- The function says that the copy is whole. Rows that are nearer come first; those of their vectors are exact.
do $finish$
declare
  place text;
begin
  select quote_ident(n.nspname) into place from pg_extension e join pg_namespace n on n.oid = e.extnamespace where e.extname = 'vector';
  execute format($sql$
    create or replace function perdure.nearest_memories(scopes int[], wanted text, query text, nos bigint[], looked_at int)
    returns table (no bigint, chunk int, near float8, vector bytea) language sql stable set search_path = pg_catalog, pg_temp as $f$
      select n.entry_no, n.chunk, n.near, v.vector from (
        select p.entry_no, p.chunk, -(p.vector operator(%1$s.<#>) query::%1$s.vector) as near from perdure.memory_pgvectors p
        where p.scope_no = any (scopes) and p.embedder = wanted and (nos is null or p.entry_no = any (nos))
        order by 3 desc limit looked_at) n
      join perdure.memory_vectors v on v.entry_no = n.entry_no and v.chunk = n.chunk
      order by n.near desc
    $f$
  $sql$, place);
end $finish$

-- name: nearest_memories
-- only: postgres SQLite has no pgvector.
select no, chunk, near, vector from perdure.nearest_memories(:scopes::int[], :embedder, :query, :nos::bigint[], :looked_at)
