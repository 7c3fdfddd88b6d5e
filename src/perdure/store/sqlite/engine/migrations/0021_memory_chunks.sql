-- Long entries of memory have several vectors, one of each chunk of their text. The same as on PostgreSQL.

alter table memory_vectors rename to memory_vectors_of_entries;

create table memory_vectors (
  entry_no integer not null,
  chunk integer not null default 0 check (chunk >= 0),
  embedder text not null,
  vector blob not null check (length(vector) > 0 and length(vector) % 4 = 0),
  primary key (entry_no, chunk)
) strict;

insert into memory_vectors (entry_no, embedder, vector) select entry_no, embedder, vector from memory_vectors_of_entries;

drop table memory_vectors_of_entries;
