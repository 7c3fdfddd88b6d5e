-- Long entries of memory have several vectors, one of each chunk of their text.

alter table perdure.memory_vectors add column chunk int not null default 0;
alter table perdure.memory_vectors drop constraint memory_vectors_pkey;
alter table perdure.memory_vectors add primary key (entry_no, chunk);
alter table perdure.memory_vectors add constraint memory_vectors_chunk check (chunk >= 0);

comment on column perdure.memory_vectors.chunk is 'The part of the text, from 0.';
