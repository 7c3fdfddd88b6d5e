-- The durable job core on SQLite 3.40+, no extension needed. The same tables and columns as on PostgreSQL, without a schema.
--
-- Where the dialect differs: ids are lower-case hyphenated UUID text, times are microseconds since 1970 (UTC), JSON is checked
-- text, lists are JSON arrays, booleans are 0 and 1.
-- A trigger here cannot change NEW. So a status changed by hand is repaired by an UPDATE after the fact (jobs_repaired), and
-- the rules that such a half-written row breaks for a moment are kept by triggers instead of CHECKs.
-- Triggers use built-in functions only: people open the file with the sqlite3 shell. They say `a = x or a = y` instead of
-- `in (x, y, z)` where it is hot: a trigger builds the list again each time it fires.
-- RAISE takes literals only, so messages cannot name the job.

-- Database time, millisecond steps. perdure reads it once per transaction; tests put a table in its place.
create view clock (now) as select cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000;

-- A default cannot read the clock. 0 (and lane '') mean "not given": jobs_born fills them in.
-- The id's default is a UUIDv7, so that any language can enqueue by an INSERT: milliseconds, the version, the variant, noise.
-- The big texts come last, so that reading a status does not walk through them.
create table jobs (
  id text not null primary key default (
    substr(printf('%012x', cast((julianday('now') - 2440587.5) * 86400000.0 as integer)), 1, 8) || '-' ||
    substr(printf('%012x', cast((julianday('now') - 2440587.5) * 86400000.0 as integer)), 9) || '-7' ||
    substr(lower(hex(randomblob(2))), 2) || '-' || substr('89ab', 1 + (random() & 3), 1) ||
    substr(lower(hex(randomblob(2))), 2) || '-' || lower(hex(randomblob(6)))
  ) check (length(id) = 36 and id not glob '*[^0-9a-f-]*' and id like '________-____-____-____-____________'
    and length(replace(id, '-', '')) = 32),
  tenant_id text not null default 'default',
  kind text not null,
  queue text not null default 'default',
  lane text not null default '',
  status text not null default 'PENDING',
  prev_status text not null default 'PENDING',  -- perdure's own statements set it to the status they change: so they are known
  version integer not null default 1,
  priority integer not null default 5,
  attempt integer not null default 0,
  retry_count integer not null default 0,
  max_retries integer,  -- null until the first claim where the caller left it to the handler
  lost_starts integer not null default 0,
  suspicion integer not null default 0,  -- how often it was lost together with other jobs of its worker
  run_at integer not null default 0,
  next_retry_at integer,
  deadline integer,
  created_at integer not null default 0,
  updated_at integer not null default 0,
  started_at integer,
  finished_at integer,
  ran integer,  -- microseconds that the handler ran in the attempt that completed it
  pruned_at integer check (pruned_at is null or finished_at is not null),  -- when its payload, result and checkpoint were pruned
  idempotency_key text,
  payload_hash text,
  origin_id text,
  origin_kind text,
  error_kind text,
  goal text,
  note text not null default '{"actor":"sql","via":"sql"}' check (json_valid(note)),
  error_message text,
  payload text not null default 'null' check (json_valid(payload)),
  result text check (result is null or json_valid(result)),
  -- the years 2 to 9998
  constraint jobs_run_at check (run_at between -62104060800000000 and 253370764800000000),
  constraint jobs_deadline check (deadline is null or deadline between -62104060800000000 and 253370764800000000),
  constraint jobs_attempt check (attempt >= 0 and lost_starts >= 0),
  constraint jobs_priority check (priority between 1 and 9),
  constraint jobs_max_retries check (max_retries between 0 and 100),
  constraint jobs_retry_count check (retry_count between 0 and coalesce(max_retries, 100)),
  constraint jobs_result check (result is null or status = 'COMPLETED'),
  constraint jobs_origin check ((origin_id is null) = (origin_kind is null))
) strict;
create unique index jobs_idempotency on jobs (tenant_id, kind, idempotency_key) where idempotency_key is not null;
create index jobs_kind on jobs (kind, id);

create table job_events (
  job_id text not null,
  version integer not null,
  created_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000),
  type text not null,
  from_status text,
  to_status text,
  attempt integer,
  event_id text,
  ran integer,  -- with job_completed: microseconds that the handler ran
  payload text not null default '{}' check (json_valid(payload)),
  primary key (job_id, version)
) strict, without rowid;

create view job_history as
  select job_id, version, from_status as previous_status, to_status as new_status, payload as metadata, created_at
  from job_events where to_status is not null;

create table job_queue (
  job_id text not null primary key,
  lane text not null,
  kind text not null,
  priority integer not null,
  run_at integer not null,
  deadline integer,
  status text not null default 'PENDING'  -- of its job: so that a backlog is counted here
) strict, without rowid;
-- By kind: a worker reads the ranges of the kinds that it has handlers for, and no others.
create index job_queue_ready on job_queue (lane, kind, priority, run_at, job_id);
create index job_queue_deadline on job_queue (deadline) where deadline is not null;

create table job_claims (
  job_id text not null primary key,
  tenant_id text not null default 'default',
  attempt integer not null,
  version integer not null,
  worker_id text not null,
  ttl integer not null default 30000000,
  claimed_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000),
  expires_at integer not null,
  started integer not null default 0 check (started in (0, 1)),
  cancel_requested_at integer,
  ends_at integer,  -- the lease is not renewed beyond it: set where the attempt has a timeout or deadline
  cancel_note text check (cancel_note is null or json_valid(cancel_note))
) strict, without rowid;

create table approvals (
  id text not null primary key check (length(id) = 36 and id not glob '*[^0-9a-f-]*' and id like '________-____-____-____-____________'
    and length(replace(id, '-', '')) = 32),
  tenant_id text not null default 'default',
  job_id text not null,
  key text not null,
  kind text not null default 'approval',
  title text not null,
  payload text not null check (json_valid(payload)),
  payload_digest text not null,
  requester text not null,
  assignees text not null default '[]' check (json_type(assignees) = 'array'),
  status text not null default 'PENDING',
  on_expiry text not null default 'fail',
  on_deny text not null default 'fail',
  token_hash text,
  requested_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000),
  expires_at integer,
  decided_at integer,
  decided_by text,
  decided_via text,
  comment text,
  edited integer not null default 0 check (edited in (0, 1)),
  decision_payload text check (decision_payload is null or json_valid(decision_payload)),
  unique (job_id, kind, key),
  constraint approvals_status check (status in ('PENDING', 'APPROVED', 'DENIED', 'EXPIRED', 'CANCELLED')),
  constraint approvals_kind check (kind in ('approval', 'question')),
  constraint approvals_policies check (on_expiry in ('fail', 'deny', 'continue') and on_deny in ('fail', 'resume')),
  constraint approvals_decided check ((status = 'PENDING') = (decided_at is null)),
  constraint approvals_edited check (edited = (decision_payload is not null)),
  constraint approvals_times check (expires_at is null or expires_at between -62104060800000000 and 253370764800000000)
) strict;
create unique index approvals_token on approvals (token_hash) where token_hash is not null;
-- "not null" keeps this index from being taken for a list of all open approvals: it is for those that can expire.
create index approvals_open on approvals (expires_at) where status = 'PENDING' and expires_at is not null;
create index approvals_latest on approvals (decided_at) where decided_at is not null;

create table job_waits (
  job_id text not null,
  key text not null,
  kind text not null,
  subject_id text,  -- the id of what it is about: an approval's for example
  until integer,  -- the time that ends it without an answer
  opened_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000),
  answered_at integer,
  primary key (job_id, kind, key)
) strict, without rowid;
create index job_waits_code on job_waits (job_id) where kind = 'code' and answered_at is null;

create table job_state (
  job_id text not null primary key,
  checkpoint text check (checkpoint is null or json_valid(checkpoint)),
  progress real check (progress between 0 and 1),
  progress_text text,
  tokens integer not null default 0,
  cost text not null default '0'  -- a decimal number: a real would not be exact
    check (cost glob '[0-9]*' and cost not glob '*[^0-9.]*' and cost not glob '*.*.*'),
  updated_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000)
) strict;

create table job_incomplete_runs (
  job_id text not null,
  attempt integer not null,
  worker_id text not null,
  started_at integer not null,
  finished_at integer not null,
  outcome text not null,
  error_message text,
  error_kind text,
  primary key (job_id, attempt)
) strict, without rowid;

-- The run of the attempt that completed its job is read from its event; the table keeps those of all other attempts that ended.
create view job_runs as
  select job_id, attempt, worker_id, started_at, finished_at, outcome, error_message, error_kind from job_incomplete_runs
  union all
  select job_id, attempt, payload ->> 'worker', created_at - ran, created_at, to_status, null, null
  from job_events where ran is not null;

create table job_failures (
  job_id text not null primary key,
  status text not null,
  finished_at integer not null
) strict, without rowid;
create index job_failures_status on job_failures (status, job_id);

create table workers (
  id text not null primary key,
  tenant_id text not null default 'default',
  host text not null,
  pid integer not null,
  queues text not null check (json_type(queues) = 'array'),
  kinds text not null check (json_type(kinds) = 'array'),
  concurrency integer not null,
  hung integer not null default 0,  -- calls that go on though their attempt has ended
  blocked integer not null default 0,  -- how often its event loop stood still
  losses integer not null default 0,  -- started jobs that were taken from it
  grace integer not null default 10000000,  -- for a handler to stop after a cancel or its timeout
  version text,  -- of the code of its handlers
  state text not null default 'RUNNING' check (state in ('RUNNING', 'DRAINING', 'STOPPED')),
  command text check (command in ('drain', 'stop', 'stop_now')),
  started_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000),
  heartbeat_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000)
) strict, without rowid;

create table leaders (
  tenant_id text not null default 'default',
  chore text not null,
  holder text not null,
  expires_at integer not null,
  primary key (tenant_id, chore)
) strict, without rowid;

create table prune_batch (job_id text not null primary key) strict, without rowid;

-- A job is born PENDING at version 1 ------------------------------------------------------------------------------------

create trigger jobs_birth before insert on jobs
when new.status <> 'PENDING' or new.prev_status <> 'PENDING' or new.version <> 1 or new.attempt <> 0 or new.retry_count <> 0
  or new.next_retry_at is not null or new.finished_at is not null or new.error_message is not null
begin
  select raise(abort, 'a job is born PENDING at version 1, attempt 0');
end;

-- INSERT OR REPLACE would delete the job that has the key or the rowid, unseen by any trigger. (That of the same id is kept by its
-- log.) Here a rowid that was not given is -1.
create trigger jobs_rowid_given before insert on jobs when new.rowid <> -1
begin
  select raise(abort, 'the rowid of a job cannot be chosen');
end;

create trigger jobs_key_taken before insert on jobs
when new.idempotency_key is not null and exists (select 1 from jobs j
  where j.tenant_id = new.tenant_id and j.kind = new.kind and j.idempotency_key = new.idempotency_key)
begin
  select raise(abort, 'UNIQUE constraint failed: idempotency_key belongs to another job of this kind');
end;

create trigger jobs_born after insert on jobs
when new.run_at <> 0 and new.created_at <> 0 and new.updated_at <> 0 and new.lane <> ''
begin
  insert into job_events (job_id, version, created_at, type, to_status, payload)
    values (new.id, 1, new.created_at, 'job_created', 'PENDING', new.note);
  insert into job_queue (job_id, lane, kind, priority, run_at, deadline)
    values (new.id, new.lane, new.kind, new.priority, new.run_at, new.deadline);
end;

-- An INSERT by ad-hoc SQL, which leaves some of them to us.
create trigger jobs_born_ad_hoc after insert on jobs
when new.run_at = 0 or new.created_at = 0 or new.updated_at = 0 or new.lane = ''
begin
  update jobs set
    run_at = case run_at when 0 then (select now from clock) else run_at end,
    created_at = case created_at when 0 then (select now from clock) else created_at end,
    updated_at = case updated_at when 0 then (select now from clock) else updated_at end,
    lane = case when lane <> '' then lane when tenant_id = 'default' then queue else tenant_id || ':' || queue end
  where id = new.id;
  insert into job_events (job_id, version, created_at, type, to_status, payload)
    select id, 1, created_at, 'job_created', 'PENDING', note from jobs where id = new.id;
  insert into job_queue (job_id, lane, kind, priority, run_at, deadline)
    select id, lane, kind, priority, run_at, deadline from jobs where id = new.id;
end;

-- The transition table: the only pairs that pass -------------------------------------------------------------------------

create trigger jobs_identity before update of id, tenant_id, kind, created_at on jobs
when old.id <> new.id or old.tenant_id <> new.tenant_id or old.kind <> new.kind
  or (old.created_at <> new.created_at and old.created_at <> 0)
begin
  select raise(abort, 'identity of a job cannot be rewritten: id, tenant_id, kind and created_at stay');
end;

-- OR REPLACE deletes the job that has it. The three names are one.
create trigger jobs_rowid_kept before update of rowid, oid, _rowid_ on jobs
begin
  select raise(abort, 'the rowid of a job cannot be changed');
end;

create trigger jobs_payload_kept after update of payload, payload_hash on jobs
when new.payload_hash is not old.payload_hash
  or (new.payload <> old.payload and (old.pruned_at is not null or new.pruned_at is null or new.payload <> 'null'))
begin
  select raise(abort, 'the payload of a job cannot be rewritten');
end;

-- Something was changed by hand: every transition of perdure's own raises the version.
create trigger jobs_touched after update of queue, lane, priority, retry_count, max_retries, lost_starts, run_at, next_retry_at, deadline,
  started_at, finished_at, ran, pruned_at, idempotency_key, origin_id, origin_kind, error_kind, goal, note, error_message, result
  on jobs
when new.version = old.version and new.status = old.status and old.updated_at <> 0
begin
  select raise(abort, 'the result of a job that has ended cannot be rewritten')
    where old.finished_at is not null and new.result is not old.result and new.pruned_at is old.pruned_at;
  update jobs set updated_at = (select now from clock) where id = new.id and new.pruned_at is old.pruned_at
    and new.updated_at = old.updated_at and updated_at <> (select now from clock);
end;

-- Before the update: OR REPLACE deletes the other job first.
create trigger jobs_key_taken_again before update of idempotency_key on jobs
when new.idempotency_key is not old.idempotency_key and exists (select 1 from jobs j where j.tenant_id = new.tenant_id
  and j.kind = new.kind and j.idempotency_key = new.idempotency_key and j.id <> new.id)
begin
  select raise(abort, 'UNIQUE constraint failed: idempotency_key belongs to another job of this kind');
end;

-- After the update: for a trigger before it SQLite reads each row twice. A refusal undoes what other
-- triggers did meanwhile.
create trigger jobs_guard after update of status, version, attempt, next_retry_at, finished_at, error_message on jobs
when new.version < old.version or new.attempt < old.attempt
  or case when old.status = new.status then
      (new.version <> old.version
        and not exists (select 1 from job_events e where e.job_id = new.id and e.version = new.version))
      or (new.status = 'RETRY') <> (new.next_retry_at is not null)
      or (new.status = 'COMPLETED' or new.status = 'FAILED' or new.status = 'CANCELLED' or new.status = 'DEADLETTER')
        <> (new.finished_at is not null)
      or (new.status = 'FAILED' or new.status = 'DEADLETTER') <> (new.error_message is not null)
    else not case old.status
      when 'PENDING' then new.status = 'RUNNING' or new.status = 'FAILED' or new.status = 'CANCELLED'
      when 'RUNNING' then new.status = 'COMPLETED' or new.status = 'FAILED' or new.status = 'RETRY' or new.status = 'WAITING'
        or new.status = 'PARKED' or new.status = 'WAITING_FOR_APPROVAL' or new.status = 'CANCELLED'
        or new.status = 'DEADLETTER'
      when 'RETRY' then new.status = 'RUNNING' or new.status = 'CANCELLED' or new.status = 'FAILED'
        or new.status = 'DEADLETTER'
      when 'WAITING' then new.status = 'RUNNING' or new.status = 'PARKED' or new.status = 'RETRY' or new.status = 'FAILED'
        or new.status = 'CANCELLED' or new.status = 'DEADLETTER'
      when 'PARKED' then new.status = 'RUNNING' or new.status = 'FAILED' or new.status = 'CANCELLED'
        or new.status = 'DEADLETTER'
      when 'WAITING_FOR_APPROVAL' then new.status = 'RUNNING' or new.status = 'FAILED' or new.status = 'CANCELLED'
      else 0 end
      or (new.version > old.version and new.prev_status = old.status and case new.status
        when 'RUNNING' then new.finished_at is not null or new.error_message is not null or new.next_retry_at is not null
        when 'COMPLETED' then new.finished_at is null or new.error_message is not null or new.next_retry_at is not null
          or exists (select 1 from job_claims k where k.job_id = new.id)
        when 'WAITING' then new.finished_at is not null or new.error_message is not null or new.next_retry_at is not null
        else (new.status = 'RETRY') <> (new.next_retry_at is not null)
          or (new.status = 'FAILED' or new.status = 'CANCELLED' or new.status = 'DEADLETTER') <> (new.finished_at is not null)
          or (new.status = 'FAILED' or new.status = 'DEADLETTER') <> (new.error_message is not null)
          or exists (select 1 from job_claims k where k.job_id = new.id) end)
    end
begin
  select case
    when new.version < old.version or new.attempt < old.attempt
      then raise(abort, 'version and attempt of a job cannot be rewritten')
    when old.status <> new.status and not case old.status
      when 'PENDING' then new.status in ('RUNNING', 'FAILED', 'CANCELLED')
      when 'RUNNING' then new.status in ('COMPLETED', 'FAILED', 'RETRY', 'WAITING', 'PARKED', 'WAITING_FOR_APPROVAL', 'CANCELLED',
        'DEADLETTER')
      when 'RETRY' then new.status in ('RUNNING', 'CANCELLED', 'FAILED', 'DEADLETTER')
      when 'WAITING' then new.status in ('RUNNING', 'PARKED', 'RETRY', 'FAILED', 'CANCELLED', 'DEADLETTER')
      when 'PARKED' then new.status in ('RUNNING', 'FAILED', 'CANCELLED', 'DEADLETTER')
      when 'WAITING_FOR_APPROVAL' then new.status in ('RUNNING', 'FAILED', 'CANCELLED')
      else 0 end
      then case old.status
        when 'PENDING' then raise(abort, 'illegal transition from PENDING')
        when 'RUNNING' then raise(abort, 'illegal transition from RUNNING')
        when 'RETRY' then raise(abort, 'illegal transition from RETRY')
        when 'WAITING' then raise(abort, 'illegal transition from WAITING')
        when 'PARKED' then raise(abort, 'illegal transition from PARKED')
        when 'WAITING_FOR_APPROVAL' then raise(abort, 'illegal transition from WAITING_FOR_APPROVAL')
        else raise(abort, 'illegal transition from a terminal state') end
    when (new.status = 'RETRY') <> (new.next_retry_at is not null)
      then raise(abort, 'CHECK constraint failed: jobs_next_retry_at (it is set exactly in RETRY)')
    when (new.status in ('FAILED', 'DEADLETTER')) <> (new.error_message is not null)
      then raise(abort, 'CHECK constraint failed: jobs_error (error_message is set exactly in FAILED and DEADLETTER)')
    when (new.status in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER')) <> (new.finished_at is not null)
      then raise(abort, 'CHECK constraint failed: jobs_finished_at (it is set exactly in the terminal states)')
    when old.status <> new.status then raise(abort, 'a job cannot leave RUNNING or WAITING while its claim is present')
    else raise(abort, 'jobs.version moved without an event') end;
end;

-- What follows from a transition: its event, and the transient tables kept in step ------------------------------------------

-- A statement of perdure's own: it raised the version and named the status it found.
create trigger jobs_moved after update of status on jobs
when old.status <> new.status and new.version > old.version and new.prev_status = old.status
begin
  insert into job_events (job_id, version, created_at, type, from_status, to_status, attempt, ran, payload)
    values (new.id, new.version, new.updated_at, case new.status
        when 'RUNNING' then case old.status when 'WAITING' then 'job_resumed' else 'run_started' end
        when 'COMPLETED' then 'job_completed' when 'FAILED' then 'job_failed' when 'CANCELLED' then 'job_cancelled'
        when 'DEADLETTER' then 'job_deadlettered' when 'RETRY' then 'job_retrying' when 'WAITING' then 'job_waiting'
        when 'PARKED' then 'job_parked' when 'WAITING_FOR_APPROVAL' then 'job_waiting_for_approval' else 'refused' end,
      old.status, new.status, new.attempt, case when new.status = 'COMPLETED' then new.ran end, new.note);
end;

-- The end of a job, also one by ad-hoc SQL: finished_at is set exactly then. Each trigger first looks whether it has anything to
-- do: opening a table to write to it costs more than that.
create trigger jobs_ended_unleased after update of finished_at on jobs
when old.finished_at is null and new.finished_at is not null and old.status <> 'RUNNING' and old.status <> 'WAITING'
begin
  delete from job_queue where job_id = new.id;
end;

create trigger jobs_ended_waiting after update of finished_at on jobs
when old.finished_at is null and new.finished_at is not null and (exists (select 1 from job_waits where job_id = new.id)
  or exists (select 1 from approvals where job_id = new.id and status = 'PENDING'))
begin
  delete from job_waits where job_id = new.id;
  update approvals set status = 'CANCELLED', decided_at = new.finished_at, decided_via = 'system', comment = 'its job ended'
    where job_id = new.id and status = 'PENDING';
end;

create trigger jobs_ended_failed after update of finished_at on jobs
when old.finished_at is null and new.finished_at is not null and new.status <> 'COMPLETED'
begin
  insert into job_failures (job_id, status, finished_at) values (new.id, new.status, new.finished_at)
    on conflict (job_id) do nothing;
end;

-- When an unleased job is due again. A view with an INSTEAD OF trigger is SQLite's way to write a procedure: jobs_requeued and
-- jobs_repaired call it.
create view job_requeues (id, status, at, lane, kind, priority, next_retry_at, deadline) as
  select id, status, updated_at, lane, kind, priority, next_retry_at, deadline from jobs;

create trigger job_requeues_call instead of insert on job_requeues
begin
  insert into job_queue (job_id, lane, kind, priority, run_at, deadline, status)
    select new.id, new.lane, new.kind, new.priority, new.next_retry_at, new.deadline, new.status where new.status = 'RETRY'
    on conflict (job_id) do update set run_at = excluded.run_at, status = excluded.status;
  -- due at the earliest time of a wait or at the deadline; at once if a wait is answered or there is none at all. While it waits for
  -- code that fits, nothing else wakes it: the code that does not fit would be claimed over and over.
  insert into job_queue (job_id, lane, kind, priority, run_at, deadline, status)
    select new.id, new.lane, new.kind, new.priority, w.wake_at, new.deadline, new.status from (
      select case when count(case when kind = 'code' and answered_at is null then 1 end) > 0 then new.deadline
        when count(*) = 0 or count(answered_at) > 0 then new.at
        else min(coalesce(min(until), new.deadline), coalesce(new.deadline, min(until))) end as wake_at
      from job_waits where job_id = new.id) w
    where new.status <> 'RETRY' and w.wake_at is not null
    on conflict (job_id) do update set run_at = excluded.run_at, status = excluded.status;
end;

create trigger jobs_requeued after update of status on jobs
when old.status <> new.status and new.version > old.version and new.prev_status = old.status
  and (new.status = 'RETRY' or new.status = 'PARKED' or new.status = 'WAITING_FOR_APPROVAL')
begin
  insert into job_requeues
    values (new.id, new.status, new.updated_at, new.lane, new.kind, new.priority, new.next_retry_at, new.deadline);
end;

-- Ad-hoc SQL changed a status and nothing else. The inner UPDATE does not name `status`, so it fires neither this trigger nor
-- jobs_moved, whatever recursive_triggers says. The event comes first: jobs_guard looks for it.
create trigger jobs_repaired after update of status on jobs
when old.status <> new.status and (new.version <= old.version or new.prev_status <> old.status)
begin
  -- the worker is fenced: its claim is gone, or (between RUNNING and WAITING) follows the log
  delete from job_claims where job_id = new.id and new.status <> 'RUNNING' and new.status <> 'WAITING';
  update job_claims set version = version + 1
    where job_id = new.id and old.status in ('RUNNING', 'WAITING') and new.status in ('RUNNING', 'WAITING');
  -- no worker runs it: an expired claim lets a reaper hand it to one
  delete from job_queue where job_id = new.id and new.status = 'RUNNING' and old.status <> 'WAITING';
  insert into job_claims (job_id, tenant_id, attempt, version, worker_id, claimed_at, expires_at)
    select new.id, old.tenant_id, old.attempt + 1, old.version + 1, 'sql', (select now from clock), (select now from clock)
    where new.status = 'RUNNING' and old.status <> 'WAITING'
    on conflict (job_id) do update set attempt = excluded.attempt, version = excluded.version,
      worker_id = excluded.worker_id, claimed_at = excluded.claimed_at, expires_at = excluded.expires_at, started = 0,
      cancel_requested_at = null, cancel_note = null, ends_at = null;
  insert into job_events (job_id, version, created_at, type, from_status, to_status, attempt, ran, payload)
    values (new.id, (select max(version) + 1 from job_events where job_id = new.id), (select now from clock), case new.status
        when 'RUNNING' then case old.status when 'WAITING' then 'job_resumed' else 'run_started' end
        when 'COMPLETED' then 'job_completed' when 'FAILED' then 'job_failed' when 'CANCELLED' then 'job_cancelled'
        when 'DEADLETTER' then 'job_deadlettered' when 'RETRY' then 'job_retrying' when 'WAITING' then 'job_waiting'
        when 'PARKED' then 'job_parked' when 'WAITING_FOR_APPROVAL' then 'job_waiting_for_approval' else 'refused' end,
      old.status, new.status,
      case when new.status = 'RUNNING' and old.status <> 'WAITING' then old.attempt + 1 else new.attempt end,
      case when new.status = 'COMPLETED' then new.ran end,
      -- what was written stands in the event, with what a note of its own says
      case when new.note <> old.note and json_type(new.note) <> 'object' then new.note else json_patch(
        case when new.note = old.note then '{"actor":"sql","via":"sql"}' else new.note end,
        json_patch('{}', json_object(
          'retry_count', case when new.status = 'RETRY' or new.retry_count <> old.retry_count then new.retry_count end,
          'next_retry_at', (select strftime('%Y-%m-%dT%H:%M:%S', at / 1000000, 'unixepoch')
              || printf('.%06d+00:00', at % 1000000)
            from (select coalesce(new.next_retry_at, (select now from clock)) as at) where new.status = 'RETRY'),
          'approval', (select id from approvals where job_id = new.id and status = 'PENDING'
            and new.status = 'WAITING_FOR_APPROVAL' order by requested_at, id limit 1),
          'error_kind', case when new.status in ('FAILED', 'DEADLETTER') then coalesce(new.error_kind, 'fatal') end,
          'error', case when new.status in ('FAILED', 'DEADLETTER') then coalesce(new.error_message, 'set by hand') end)))
      end);
  update jobs set
    version = (select max(version) from job_events where job_id = new.id),
    prev_status = old.status,
    lane = case when new.queue = old.queue or new.lane <> old.lane then new.lane when new.tenant_id = 'default' then new.queue
      else new.tenant_id || ':' || new.queue end,
    attempt = case when new.status = 'RUNNING' and old.status <> 'WAITING' then old.attempt + 1 else new.attempt end,
    updated_at = (select now from clock),
    next_retry_at = case when new.status = 'RETRY' then coalesce(new.next_retry_at, (select now from clock)) end,
    finished_at = case when new.status in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER')
      then coalesce(new.finished_at, (select now from clock)) else new.finished_at end,
    error_message = case when new.status in ('FAILED', 'DEADLETTER') then coalesce(new.error_message, 'set by hand')
      else new.error_message end,
    error_kind = case when new.status in ('FAILED', 'DEADLETTER') then coalesce(new.error_kind, 'fatal')
      else new.error_kind end,
    note = (select payload from job_events where job_id = new.id order by version desc limit 1)
  where id = new.id;
  insert into job_requeues select id, status, updated_at, lane, kind, priority, next_retry_at, deadline from jobs
    where id = new.id and status in ('RETRY', 'PARKED', 'WAITING_FOR_APPROVAL');
end;

-- What a queue row repeats of its job follows it.
create trigger jobs_queue_row after update of priority, lane, queue, deadline on jobs
when old.status = new.status and (old.priority <> new.priority or old.lane <> new.lane or old.queue <> new.queue
  or old.deadline is not new.deadline)
begin
  -- ad-hoc SQL names the queue and leaves the lane to us
  update jobs set lane = case when new.tenant_id = 'default' then new.queue else new.tenant_id || ':' || new.queue end
    where old.queue <> new.queue and old.lane = new.lane and id = new.id;
  update job_queue set priority = new.priority, lane = (select j.lane from jobs j where j.id = new.id), deadline = new.deadline
    where old.version = new.version and job_id = new.id;
end;

-- An answer wakes the job that is suspended on it: whatever answers a wait sets its answered_at ---------------------------

create trigger job_waits_answered after update of answered_at on job_waits
when old.answered_at is null and new.answered_at is not null
begin
  insert into job_queue (job_id, lane, kind, priority, run_at, deadline, status)
    select j.id, j.lane, j.kind, j.priority, min(new.answered_at, (select now from clock)), j.deadline, j.status from jobs j
    where j.id = new.job_id and j.status in ('PARKED', 'WAITING_FOR_APPROVAL') and not exists (
      select 1 from job_waits w where w.job_id = new.job_id and w.kind = 'code' and w.answered_at is null)
    on conflict (job_id) do update set run_at = min(job_queue.run_at, excluded.run_at);
end;

create trigger approvals_decided after update of status on approvals
when old.status = 'PENDING' and new.status <> 'PENDING'
begin
  update job_waits set answered_at = new.decided_at
    where job_id = new.job_id and subject_id = new.id and answered_at is null;
end;

-- INSERT OR REPLACE would ask again what was decided.
create trigger approvals_kept before insert on approvals when exists (select 1 from approvals a
  where (a.id = new.id or a.job_id = new.job_id and a.key = new.key) and a.status <> 'PENDING')
begin
  select raise(abort, 'an approval is decided once: the first decision stands');
end;

create trigger approvals_once before update on approvals
when old.status <> 'PENDING' and (new.status <> old.status or new.decided_at is not old.decided_at
  or new.decided_by is not old.decided_by or new.payload_digest <> old.payload_digest)
begin
  select raise(abort, 'an approval is decided once: the first decision stands');
end;

-- The log is append-only and dense ---------------------------------------------------------------------------------------

create trigger job_events_no_update before update on job_events
begin
  select raise(abort, 'job_events is append-only');
end;

-- One look at the end of the log refuses gaps and rewrites alike, also those of INSERT OR REPLACE.
create trigger job_events_dense before insert on job_events
when new.version <> 1 + coalesce((select max(e.version) from job_events e where e.job_id = new.job_id), 0)
begin
  select raise(abort, 'gap in job_events, or a version that is already taken');
end;

-- Only pruning removes jobs and their logs: terminal ones, listed in prune_batch, which is empty between transactions. The job goes
-- first, so that no part of a log can be deleted and written again.
create trigger job_events_no_delete before delete on job_events
when not exists (select 1 from prune_batch b where b.job_id = old.job_id) or exists (select 1 from jobs j where j.id = old.job_id)
begin
  select raise(abort, 'job_events is append-only: use perdure db prune');
end;
create trigger jobs_no_delete before delete on jobs
when old.status not in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER')
  or not exists (select 1 from prune_batch b where b.job_id = old.id)
begin
  select raise(abort, 'jobs is append-only: use perdure db prune');
end;
