-- The runs of coding CLIs, and what they write while they run. Where the dialect differs: one chunk for each execution.

-- name: list_tool_runs
select * from tool_runs where job_id = :job_id and tenant_id = :tenant_id order by attempt

-- name: append_output
insert into tool_output (job_id, attempt, seq, stream, content, created_at)
values (:job_id, :attempt, :seq, :stream, :content, :now) on conflict do nothing

-- name: read_output
select o.attempt, o.seq, o.stream, o.content from tool_output o join jobs j on j.id = o.job_id
where o.job_id = :job_id and j.tenant_id = :tenant_id and (o.attempt, o.seq) > (:attempt, :after)
order by o.attempt, o.seq limit :limit
