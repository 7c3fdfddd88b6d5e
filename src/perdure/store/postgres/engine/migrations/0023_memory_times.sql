-- Searches of memory that are narrowed by time alone read the newest entries.

create index memory_entries_created on perdure.memory_entries (scope_no, created_at);
