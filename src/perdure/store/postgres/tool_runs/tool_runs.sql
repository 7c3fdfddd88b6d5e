-- The runs of coding CLIs, and what they write while they run.

-- name: list_tool_runs
select * from perdure.tool_runs where job_id = :job_id and tenant_id = :tenant_id order by attempt

-- name: append_output
insert into perdure.tool_output (job_id, attempt, seq, stream, content)
select :job_id, :attempt, u.seq, u.stream, u.content from unnest(:seqs::int[], :streams::text[], :contents::bytea[])
  u(seq, stream, content)
on conflict do nothing

-- name: read_output
select o.attempt, o.seq, o.stream, o.content from perdure.tool_output o join perdure.jobs j on j.id = o.job_id
where o.job_id = :job_id and j.tenant_id = :tenant_id and (o.attempt, o.seq) > (:attempt::int, :after::int)
order by o.attempt, o.seq limit :limit
