-- How much space tables and indexes take.

-- name: table_sizes
-- Rows, counted up to a bound: to count a large table is to read it.
select 'jobs' as name, (select count(*) from (select 1 from jobs limit :bound)) as rows
union all select 'job_events' as name, (select count(*) from (select 1 from job_events limit :bound)) as rows
union all select 'job_queue' as name, (select count(*) from (select 1 from job_queue limit :bound)) as rows
union all select 'job_claims' as name, (select count(*) from (select 1 from job_claims limit :bound)) as rows
union all select 'job_waits' as name, (select count(*) from (select 1 from job_waits limit :bound)) as rows
union all select 'job_state' as name, (select count(*) from (select 1 from job_state limit :bound)) as rows
union all select 'job_incomplete_runs' as name, (select count(*) from (select 1 from job_incomplete_runs limit :bound)) as rows
union all select 'job_failures' as name, (select count(*) from (select 1 from job_failures limit :bound)) as rows
union all select 'approvals' as name, (select count(*) from (select 1 from approvals limit :bound)) as rows
union all select 'signals' as name, (select count(*) from (select 1 from signals limit :bound)) as rows
union all select 'workers' as name, (select count(*) from (select 1 from workers limit :bound)) as rows
union all select 'leaders' as name, (select count(*) from (select 1 from leaders limit :bound)) as rows
union all select 'accounts' as name, (select count(*) from (select 1 from accounts limit :bound)) as rows
union all select 'file_contents' as name, (select count(*) from (select 1 from file_contents limit :bound)) as rows
union all select 'job_files' as name, (select count(*) from (select 1 from job_files limit :bound)) as rows
union all select 'tool_runs' as name, (select count(*) from (select 1 from tool_runs limit :bound)) as rows
union all select 'tool_output' as name, (select count(*) from (select 1 from tool_output limit :bound)) as rows
union all select 'awaited_jobs' as name, (select count(*) from (select 1 from awaited_jobs limit :bound)) as rows
union all select 'cancelled_parents' as name, (select count(*) from (select 1 from cancelled_parents limit :bound)) as rows
union all select 'limits' as name, (select count(*) from (select 1 from limits limit :bound)) as rows
union all select 'budgets' as name, (select count(*) from (select 1 from budgets limit :bound)) as rows
union all select 'budget_holds' as name, (select count(*) from (select 1 from budget_holds limit :bound)) as rows
union all select 'freed_slots' as name, (select count(*) from (select 1 from freed_slots limit :bound)) as rows
union all select 'rates' as name, (select count(*) from (select 1 from rates limit :bound)) as rows
union all select 'key_starts' as name, (select count(*) from (select 1 from key_starts limit :bound)) as rows
union all select 'agent_instances' as name, (select count(*) from (select 1 from agent_instances limit :bound)) as rows
union all select 'agent_jobs' as name, (select count(*) from (select 1 from agent_jobs limit :bound)) as rows
union all select 'agent_messages' as name, (select count(*) from (select 1 from agent_messages limit :bound)) as rows
union all select 'agent_deliveries' as name, (select count(*) from (select 1 from agent_deliveries limit :bound)) as rows
union all select 'agent_states' as name, (select count(*) from (select 1 from agent_states limit :bound)) as rows
union all select 'agent_signals' as name, (select count(*) from (select 1 from agent_signals limit :bound)) as rows
union all select 'job_tags' as name, (select count(*) from (select 1 from job_tags limit :bound)) as rows
union all select 'queue_pauses' as name, (select count(*) from (select 1 from queue_pauses limit :bound)) as rows
union all select 'approval_rules' as name, (select count(*) from (select 1 from approval_rules limit :bound)) as rows
union all select 'unique_keys' as name, (select count(*) from (select 1 from unique_keys limit :bound)) as rows
union all select 'schedules' as name, (select count(*) from (select 1 from schedules limit :bound)) as rows
union all select 'memory_scopes' as name, (select count(*) from (select 1 from memory_scopes limit :bound)) as rows
union all select 'memory_entries' as name, (select count(*) from (select 1 from memory_entries limit :bound)) as rows
union all select 'memory_terms' as name, (select count(*) from (select 1 from memory_terms limit :bound)) as rows
union all select 'memory_vectors' as name, (select count(*) from (select 1 from memory_vectors limit :bound)) as rows
union all select 'documents' as name, (select count(*) from (select 1 from documents limit :bound)) as rows
union all select 'pruned_memory' as name, (select count(*) from (select 1 from pruned_memory limit :bound)) as rows
union all select 'prune_batch' as name, (select count(*) from (select 1 from prune_batch limit :bound)) as rows
union all select 'schema_migrations' as name, (select count(*) from (select 1 from schema_migrations limit :bound)) as rows

-- name: index_sizes
select name, tbl_name from sqlite_master where type = 'index'

-- name: file_sizes
-- only: sqlite the database is a file
select page_count * page_size as total, freelist_count * page_size as free
from pragma_page_count, pragma_page_size, pragma_freelist_count

-- name: object_sizes
-- only: sqlite bytes of each table and index, where SQLite was built with dbstat; it visits every page of the file
select name, pgsize from dbstat where aggregate = true
