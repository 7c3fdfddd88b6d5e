-- The durable job core on PostgreSQL 14-18, no extension needed.
--
--   jobs           permanent record, one row per job; changes only by a transition (HOT: no index on a mutable column)
--   job_events     the one log, append-only, versions dense from 1; transitions are written here by trigger
--   job_queue      transient: one row per job that may start or wake by itself, at run_at
--   job_claims     transient: one row per leased job; version is the head of the log while it is leased
--   job_waits      transient: one row per open wait of a job (timer, approval, question, ...); an answer sets answered_at
--   job_state      checkpoint, progress, tokens, cost of a job
--   job_runs       a view, one row per finished attempt: over job_incomplete_runs, and the events of attempts that completed
--   job_failures   FAILED, DEADLETTER and CANCELLED jobs, so that no list of them reads history
--   leaders        one row per chore that one worker at a time does
--   approvals, workers, prune_batch, schema_migrations
--
-- Valid statements of perdure's own never enter a row function: WHEN guards pass them and one statement trigger audits the
-- whole batch. Ad-hoc SQL takes the slow path (jobs_repair) and is validated, audited and fenced like everything else.
-- Functions name the schema explicitly and set their search_path: they also run in sessions with one of their own, which may lead
-- to functions and operators of other roles. Only db_now has none, because one that sets anything is not inlined.

create type perdure.job_status as enum ('PENDING', 'RUNNING', 'RETRY', 'WAITING', 'PARKED', 'WAITING_FOR_APPROVAL',
  'COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER');

-- Database time. Inlined into statements, so it is free; tests replace it to move leases, timers and backoff.
create function perdure.db_now() returns timestamptz language sql stable as 'select pg_catalog.now()';

-- A UUIDv7: a random one whose first 48 bits are replaced by Unix milliseconds (PostgreSQL has uuidv7() from 18 only).
create function perdure.uuid7() returns uuid language sql volatile set search_path = pg_catalog, pg_temp as $$
  select encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
    placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6), 52, 1), 53, 1),
    'hex')::uuid
$$;

-- Columns of one length come first, where they are found without reading others; the long ones that never change come last.
create table perdure.jobs (
  id uuid primary key default perdure.uuid7(),
  created_at timestamptz not null default perdure.db_now(),
  run_at timestamptz not null default perdure.db_now(),
  updated_at timestamptz not null default perdure.db_now(),
  version int not null default 1,
  attempt int not null default 0,
  status perdure.job_status not null default 'PENDING',
  prev_status perdure.job_status not null default 'PENDING',  -- the status before the last write; lets the audit need NEW only
  priority smallint not null default 5,
  retry_count smallint not null default 0,
  max_retries smallint,  -- null until the first claim where the caller left it to the handler
  lost_starts smallint not null default 0,
  next_retry_at timestamptz,
  deadline timestamptz,
  started_at timestamptz,
  finished_at timestamptz,
  pruned_at timestamptz,  -- when its payload, result and checkpoint were pruned, its log kept
  ran real,  -- seconds that the handler ran in the attempt that completed it
  suspicion smallint not null default 0,  -- how often it was lost together with other jobs of its worker
  note json not null default json_build_object('actor', session_user, 'via', 'sql'),
  result json,
  error_message text,
  error_kind text,
  tenant_id text not null default 'default',
  kind text not null,
  queue text not null default 'default',
  lane text not null,  -- where it waits: derived from tenant and queue where it is not given
  payload json not null default 'null',
  goal text,
  payload_hash text,
  idempotency_key text,
  origin_id uuid,
  origin_kind text,
  constraint jobs_attempt check (attempt >= 0 and lost_starts >= 0),
  constraint jobs_priority check (priority between 1 and 9),
  constraint jobs_max_retries check (max_retries between 0 and 100),
  constraint jobs_retry_count check (retry_count between 0 and coalesce(max_retries, 100)),
  constraint jobs_next_retry_at check ((status = 'RETRY') = (next_retry_at is not null)),
  constraint jobs_finished_at check ((status in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER')) = (finished_at is not null)),
  constraint jobs_error check ((status in ('FAILED', 'DEADLETTER')) = (error_message is not null)),
  constraint jobs_result check (result is null or status = 'COMPLETED'),
  constraint jobs_pruned_at check (pruned_at is null or finished_at is not null),
  constraint jobs_origin check ((origin_id is null) = (origin_kind is null))
) with (fillfactor = 45);
create unique index jobs_idempotency on perdure.jobs (tenant_id, kind, idempotency_key) where idempotency_key is not null;
create index jobs_kind on perdure.jobs (kind, id);

create table perdure.job_events (
  job_id uuid not null,
  created_at timestamptz not null default perdure.db_now(),
  version int not null,
  attempt int,
  from_status perdure.job_status,
  to_status perdure.job_status,
  ran real,  -- with job_completed: seconds that the handler ran
  event_id uuid,
  type text not null,
  payload json not null default '{}',
  primary key (job_id, version)
);

create view perdure.job_history as
  select job_id, version, from_status as previous_status, to_status as new_status, payload as metadata, created_at
  from perdure.job_events where to_status is not null;

create table perdure.job_queue (
  job_id uuid primary key,
  lane text not null,
  kind text not null,
  priority smallint not null,
  run_at timestamptz not null,
  deadline timestamptz,
  status perdure.job_status not null default 'PENDING'  -- of its job: so that a backlog is counted here
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
-- By kind: a worker reads the ranges of the kinds that it has handlers for, and no others.
create index job_queue_ready on perdure.job_queue (lane, kind, priority, run_at, job_id);
create index job_queue_deadline on perdure.job_queue (deadline) where deadline is not null;

create table perdure.job_claims (
  job_id uuid primary key,
  claimed_at timestamptz not null default perdure.db_now(),
  expires_at timestamptz not null,
  attempt int not null,
  version int not null,
  started boolean not null default false,
  ttl interval not null default '30 seconds',
  cancel_requested_at timestamptz,
  ends_at timestamptz,  -- the lease is not renewed beyond it: set where the attempt has a timeout or deadline
  tenant_id text not null default 'default',
  worker_id text not null,
  cancel_note json
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

create table perdure.approvals (
  id uuid primary key,
  tenant_id text not null default 'default',
  job_id uuid not null,
  key text not null,
  kind text not null default 'approval',
  title text not null,
  payload json not null,
  payload_digest text not null,
  requester text not null,
  assignees text[] not null default '{}',
  status text not null default 'PENDING',
  on_expiry text not null default 'fail',
  on_deny text not null default 'fail',
  token_hash text,
  requested_at timestamptz not null default perdure.db_now(),
  expires_at timestamptz,
  decided_at timestamptz,
  decided_by text,
  decided_via text,
  comment text,
  edited boolean not null default false,
  decision_payload json,
  unique (job_id, kind, key),
  constraint approvals_status check (status in ('PENDING', 'APPROVED', 'DENIED', 'EXPIRED', 'CANCELLED')),
  constraint approvals_kind check (kind in ('approval', 'question')),
  constraint approvals_policies check (on_expiry in ('fail', 'deny', 'continue') and on_deny in ('fail', 'resume')),
  constraint approvals_decided check ((status = 'PENDING') = (decided_at is null)),
  constraint approvals_edited check (edited = (decision_payload is not null)),
  constraint approvals_times check (least(requested_at, expires_at, decided_at) >= '0002-01-01 00:00 UTC'
    and greatest(requested_at, expires_at, decided_at) <= '9999-01-01 00:00 UTC')
);
create unique index approvals_token on perdure.approvals (token_hash) where token_hash is not null;
-- "not null" keeps this index from being taken for a list of all open approvals: it is for those that can expire.
create index approvals_open on perdure.approvals (expires_at) where status = 'PENDING' and expires_at is not null;
create index approvals_latest on perdure.approvals (decided_at) where decided_at is not null;

create table perdure.job_waits (
  job_id uuid not null,
  key text not null,
  kind text not null,
  subject_id text,  -- the id of what it is about: an approval's for example
  until timestamptz,  -- the time that ends it without an answer
  opened_at timestamptz not null default perdure.db_now(),
  answered_at timestamptz,
  primary key (job_id, kind, key)
);
create index job_waits_code on perdure.job_waits (job_id) where kind = 'code' and answered_at is null;

create table perdure.job_state (
  job_id uuid primary key,
  checkpoint json,
  progress double precision check (progress between 0 and 1),
  progress_text text,
  tokens bigint not null default 0,
  cost numeric not null default 0 check (cost >= 0 and cost < 'Infinity'),
  updated_at timestamptz not null default perdure.db_now()
) with (fillfactor = 50);

create table perdure.job_incomplete_runs (
  job_id uuid not null,
  attempt int not null,
  worker_id text not null,
  started_at timestamptz not null,
  finished_at timestamptz not null,
  outcome perdure.job_status not null,
  error_message text,
  error_kind text,
  primary key (job_id, attempt)
);

-- The run of the attempt that completed its job is read from its event; the table keeps those of all other attempts that ended.
create view perdure.job_runs as
  select job_id, attempt, worker_id, started_at, finished_at, outcome, error_message, error_kind from perdure.job_incomplete_runs
  union all
  select job_id, attempt, payload ->> 'worker', created_at - ran * interval '1 second', created_at, to_status, null, null
  from perdure.job_events where ran is not null;

create table perdure.job_failures (
  job_id uuid primary key,
  status perdure.job_status not null,
  finished_at timestamptz not null
);
create index job_failures_status on perdure.job_failures (status, job_id);

create table perdure.workers (
  id text primary key,
  tenant_id text not null default 'default',
  host text not null,
  pid int not null,
  queues text[] not null,
  kinds text[] not null,
  concurrency int not null,
  hung int not null default 0,  -- calls that go on though their attempt has ended
  blocked int not null default 0,  -- how often its event loop stood still
  losses int not null default 0,  -- started jobs that were taken from it
  grace interval not null default '10 seconds',  -- for a handler to stop after a cancel or its timeout
  version text,  -- of the code of its handlers
  state text not null default 'RUNNING' check (state in ('RUNNING', 'DRAINING', 'STOPPED')),
  command text check (command in ('drain', 'stop', 'stop_now')),
  started_at timestamptz not null default perdure.db_now(),
  heartbeat_at timestamptz not null default perdure.db_now()
);

create table perdure.leaders (
  tenant_id text not null default 'default',
  chore text not null,
  holder text not null,
  expires_at timestamptz not null,
  primary key (tenant_id, chore)
);

create table perdure.prune_batch (job_id uuid primary key, transaction_id xid8 not null default pg_current_xact_id());

-- A job is born PENDING at version 1 ------------------------------------------------------------------------------------

create function perdure.jobs_reject_birth() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception 'a job is born PENDING at version 1, attempt 0 (job %)', new.id using errcode = '23514';
end $$;
create trigger jobs_birth before insert on perdure.jobs for each row
  when (new.status <> 'PENDING' or new.prev_status <> 'PENDING' or new.version <> 1 or new.attempt <> 0 or new.retry_count <> 0)
  execute function perdure.jobs_reject_birth();

-- Ad-hoc SQL names the queue and leaves the lane to us, when it is inserted and when its queue is changed.
create function perdure.jobs_lane() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  new.lane := case when new.tenant_id = 'default' then new.queue else new.tenant_id || ':' || new.queue end;
  return new;
end $$;
create trigger jobs_lane before insert on perdure.jobs for each row when (new.lane is null)
  execute function perdure.jobs_lane();
create trigger jobs_lane_moved before update of queue, lane on perdure.jobs for each row
  when (new.queue <> old.queue and new.lane = old.lane) execute function perdure.jobs_lane();

-- With the rights of the schema's owner: a role that may insert into some columns of jobs needs no right on the other tables.
create function perdure.jobs_born() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if exists (select from new_t where least(run_at, deadline, created_at, updated_at, started_at) < '0002-01-01 00:00 UTC'
      or greatest(run_at, deadline, created_at, updated_at, started_at) > '9999-01-01 00:00 UTC') then
    raise exception 'a time of a job must be of the years 2 to 9998' using errcode = '23514';
  end if;
  insert into perdure.job_events (job_id, version, created_at, type, to_status, payload)
    select id, 1, created_at, 'job_created', status, note from new_t;
  insert into perdure.job_queue (job_id, lane, kind, priority, run_at, deadline)
    select id, lane, kind, priority, run_at, deadline from new_t;
  return null;
end $$;
create trigger jobs_born after insert on perdure.jobs referencing new table as new_t
  for each statement execute function perdure.jobs_born();

-- The transition table: the only pairs that pass -------------------------------------------------------------------------

-- Ad-hoc SQL: something was changed by hand, and the rest is left to this.
create function perdure.jobs_repair() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  head int;
  facts json;
begin
  if old.finished_at is not null and new.pruned_at is not distinct from old.pruned_at
      and new.result::text is distinct from old.result::text then
    raise exception 'the result of a job that has ended cannot be rewritten (job %)', old.id using errcode = '23514';
  end if;
  if least(new.run_at, new.deadline, new.updated_at, new.started_at, new.finished_at, new.next_retry_at, new.pruned_at)
      < '0002-01-01 00:00 UTC' or greatest(new.run_at, new.deadline, new.updated_at, new.started_at, new.finished_at,
      new.next_retry_at, new.pruned_at) > '9999-01-01 00:00 UTC' then
    raise exception 'a time of a job must be of the years 2 to 9998 (job %)', old.id using errcode = '23514';
  end if;
  if new.status = old.status then
    if new.pruned_at is not distinct from old.pruned_at and new *<> old then
      new.updated_at := perdure.db_now();
    end if;
    new.prev_status := old.status;
    return new;
  end if;
  if old.status in ('RUNNING', 'WAITING') then
    if new.status in ('RUNNING', 'WAITING') then
      update perdure.job_claims k set version = k.version + 1 where k.job_id = old.id returning k.version - 1 into head;
    else
      delete from perdure.job_claims k where k.job_id = old.id returning k.version into head;
    end if;
  elsif new.status = 'RUNNING' then
    -- no worker runs it: an expired claim lets a reaper hand it to a worker that does
    delete from perdure.job_queue q where q.job_id = old.id;
    new.attempt := old.attempt + 1;
    insert into perdure.job_claims (job_id, tenant_id, attempt, version, worker_id, expires_at)
      values (old.id, old.tenant_id, new.attempt, old.version + 1, 'sql', perdure.db_now());
  end if;
  new.prev_status := old.status;
  new.version := greatest(head, old.version) + 1;
  new.updated_at := perdure.db_now();
  new.next_retry_at := case when new.status = 'RETRY' then coalesce(new.next_retry_at, perdure.db_now()) end;
  if new.status in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER') then
    new.finished_at := coalesce(new.finished_at, perdure.db_now());
  end if;
  if new.status in ('FAILED', 'DEADLETTER') then
    new.error_message := coalesce(new.error_message, 'set by hand');
    new.error_kind := coalesce(new.error_kind, 'fatal');
  end if;
  if new.note::text = old.note::text then
    new.note := json_build_object('actor', session_user, 'via', 'sql');
  end if;
  -- What was written stands in the event, with what a note of its own says. (JSON with \u0000 cannot be taken apart.)
  if json_typeof(new.note) = 'object' and position('\u0000' in new.note::text) = 0 then
    facts := json_strip_nulls(json_build_object(
      'retry_count', case when new.status = 'RETRY' or new.retry_count <> old.retry_count then new.retry_count end,
      'next_retry_at', new.next_retry_at,
      'approval', case when new.status = 'WAITING_FOR_APPROVAL' then (select a.id from perdure.approvals a
        where a.job_id = old.id and a.status = 'PENDING' order by a.requested_at, a.id limit 1) end,
      'error_kind', case when new.status in ('FAILED', 'DEADLETTER') then new.error_kind end,
      'error', case when new.status in ('FAILED', 'DEADLETTER') then new.error_message end));
    new.note := coalesce((select json_object_agg(b.key, b.value) from (
      select n.key, n.value from json_each(new.note) n where n.key not in (select f.key from json_each(facts) f)
      union all select f.key, f.value from json_each(facts) f) b), '{}');
  end if;
  return new;
end $$;

-- Every transition of perdure's own raises the version and names the status it found.
create trigger jobs_a_repair before update on perdure.jobs for each row
  when (new.prev_status <> old.status or new.version = old.version) execute function perdure.jobs_repair();

-- PostgreSQL parses the text of a WHEN for each statement: with the whole table in it, that was half the time of a lone claim.
-- So it lets pass the two transitions of every job and updates without a transition; the function checks the others.
create function perdure.jobs_guard() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if new.version > old.version and new.attempt >= old.attempt and (
      (old.status = 'PENDING' and new.status in ('RUNNING', 'FAILED', 'CANCELLED')) or
      (old.status = 'RUNNING' and new.status in ('COMPLETED', 'FAILED', 'RETRY', 'WAITING', 'PARKED', 'WAITING_FOR_APPROVAL',
        'CANCELLED', 'DEADLETTER')) or
      (old.status = 'RETRY' and new.status in ('RUNNING', 'CANCELLED', 'FAILED', 'DEADLETTER')) or
      (old.status = 'WAITING' and new.status in ('RUNNING', 'PARKED', 'RETRY', 'FAILED', 'CANCELLED', 'DEADLETTER')) or
      (old.status = 'PARKED' and new.status in ('RUNNING', 'FAILED', 'CANCELLED', 'DEADLETTER')) or
      (old.status = 'WAITING_FOR_APPROVAL' and new.status in ('RUNNING', 'FAILED', 'CANCELLED'))) then
    return new;
  elsif old.status <> new.status then
    raise exception 'illegal transition % -> % (job %)', old.status, new.status, old.id using errcode = '23514';
  end if;
  raise exception 'version and attempt of a job cannot be rewritten (job %, version % -> %)', old.id, old.version, new.version
    using errcode = '23514';
end $$;
create trigger jobs_b_guard before update on perdure.jobs for each row
  when (new.version < old.version or new.attempt < old.attempt or (old.status <> new.status and (new.version = old.version
    or not (old.status = 'PENDING' and new.status = 'RUNNING' or old.status = 'RUNNING' and new.status = 'COMPLETED'))))
  execute function perdure.jobs_guard();

create function perdure.jobs_reject() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception 'identity of a job cannot be rewritten: id, tenant_id, kind and created_at stay (job %)', old.id
    using errcode = '23514';
end $$;
create function perdure.jobs_reject_payload() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception 'the payload of a job cannot be rewritten (job %)', old.id using errcode = '23514';
end $$;
create trigger jobs_c_payload before update of payload, payload_hash on perdure.jobs for each row
  when (new.payload_hash is distinct from old.payload_hash or (new.payload::text <> old.payload::text
    and (old.pruned_at is not null or new.pruned_at is null or new.payload::text <> 'null')))
  execute function perdure.jobs_reject_payload();
create trigger jobs_c_identity before update of id, tenant_id, kind, created_at on perdure.jobs for each row
  when (old.id <> new.id or old.tenant_id <> new.tenant_id or old.kind <> new.kind or old.created_at <> new.created_at)
  execute function perdure.jobs_reject();

-- After a statement that changed jobs: audit it and keep the transient tables in step. Needs NEW only (prev_status).
-- The planner sees these functions once per session, perhaps with a single changed row and empty tables, and keeps its plan.
-- So there is nothing to choose: other tables are reached by `= any (array (...))` or by a fenced subquery (offset 0), that
-- is by their keys, never by a join that could be turned round.
create function perdure.jobs_moved() returns trigger language plpgsql set search_path = pg_catalog, pg_temp
  set enable_seqscan = off as $$
declare
  some_same boolean;
  some_left boolean;
  some_retry boolean;
  some_suspended boolean;
  some_ended boolean;
  some_ended_unheld boolean;
  some_failed boolean;
begin
  -- What kinds of changes there are: of the few different pairs, not of each row.
  select bool_or(was = became),
    bool_or(was in ('RUNNING', 'WAITING') and became not in ('RUNNING', 'WAITING')),
    bool_or(was <> became and became = 'RETRY'),
    bool_or(was <> became and became in ('PARKED', 'WAITING_FOR_APPROVAL')),
    bool_or(was <> became and became in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER')),
    bool_or(was <> became and became in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER') and was not in ('RUNNING', 'WAITING')),
    bool_or(was <> became and became in ('FAILED', 'DEADLETTER', 'CANCELLED'))
  into some_same, some_left, some_retry, some_suspended, some_ended, some_ended_unheld, some_failed
  from (select distinct prev_status as was, status as became from new_t) pairs;
  if some_same is null then  -- no row at all
    return null;
  end if;

  insert into perdure.job_events (job_id, version, type, from_status, to_status, attempt, ran, payload)
    select id, version, case status
        when 'RUNNING' then case when prev_status = 'WAITING' then 'job_resumed' else 'run_started' end
        when 'COMPLETED' then 'job_completed' when 'FAILED' then 'job_failed' when 'CANCELLED' then 'job_cancelled'
        when 'DEADLETTER' then 'job_deadlettered' when 'RETRY' then 'job_retrying' when 'WAITING' then 'job_waiting'
        when 'PARKED' then 'job_parked' when 'WAITING_FOR_APPROVAL' then 'job_waiting_for_approval' end,
      prev_status, status, attempt, case when status = 'COMPLETED' then ran end, note
    from new_t where prev_status <> status;

  if some_same then
    -- a version may only move together with its event
    if exists (select 1 from new_t n where n.prev_status = n.status and not exists (
        select 1 from perdure.job_events e where e.job_id = n.id and e.version = n.version offset 0)) then
      raise exception 'jobs.version moved without an event' using errcode = '23514';
    end if;
    update perdure.job_queue q set priority = n.priority, lane = n.lane, deadline = n.deadline from new_t n
      where q.job_id = any (array (select id from new_t)) and q.job_id = n.id and n.prev_status = n.status
      and (q.priority <> n.priority or q.lane <> n.lane or q.deadline is distinct from n.deadline);
  end if;
  if some_left and exists (select 1 from perdure.job_claims k where k.job_id = any (array (select id from new_t
      where prev_status in ('RUNNING', 'WAITING') and status not in ('RUNNING', 'WAITING')))) then
    raise exception 'a job cannot leave RUNNING or WAITING while its claim is present' using errcode = '23514';
  end if;
  if some_retry then
    insert into perdure.job_queue (job_id, lane, kind, priority, run_at, deadline, status)
      select id, lane, kind, priority, next_retry_at, deadline, status from new_t where prev_status <> status and status = 'RETRY'
      on conflict (job_id) do update set run_at = excluded.run_at, status = excluded.status;
  end if;
  if some_suspended then
    -- An answer given in this moment comes first and is seen below, or comes after, and then it finds the job suspended.
    perform from perdure.job_waits where job_id = any (array (select id from new_t
      where prev_status <> status and status in ('PARKED', 'WAITING_FOR_APPROVAL'))) order by job_id, kind, key for share;
    -- Due at the earliest time of a wait or at the deadline; at once if a wait is answered or there is none at all. While it waits for
    -- code that fits, nothing else wakes it: the code that does not fit would be claimed over and over.
    -- A statement of its own: it sees answers committed while the statements before it waited for their locks.
    insert into perdure.job_queue (job_id, lane, kind, priority, run_at, deadline, status)
      select n.id, n.lane, n.kind, n.priority, w.wake_at, n.deadline, n.status
      from new_t n, lateral (
        select case
          when bool_or(w.kind = 'code' and w.answered_at is null) then n.deadline
          when count(*) = 0 or bool_or(w.answered_at is not null) then perdure.db_now()
          else least(min(w.until), n.deadline) end as wake_at
        from perdure.job_waits w where w.job_id = n.id) w
      where n.prev_status <> n.status and n.status in ('PARKED', 'WAITING_FOR_APPROVAL') and w.wake_at is not null
      on conflict (job_id) do update set run_at = excluded.run_at, status = excluded.status;
  end if;
  if some_ended_unheld then
    delete from perdure.job_queue where job_id = any (array (select id from new_t
      where prev_status not in ('RUNNING', 'WAITING') and prev_status <> status
      and status in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER')));
  end if;
  if some_ended then
    delete from perdure.job_waits where job_id = any (array (select id from new_t
      where prev_status <> status and status in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER')));
    update perdure.approvals set status = 'CANCELLED', decided_at = perdure.db_now(), decided_via = 'system',
        comment = 'its job ended'
      where status = 'PENDING' and job_id = any (array (select id from new_t
        where prev_status <> status and status in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER')));
  end if;
  if some_failed then
    insert into perdure.job_failures (job_id, status, finished_at)
      select id, status, finished_at from new_t where prev_status <> status and status in ('FAILED', 'DEADLETTER', 'CANCELLED');
  end if;
  return null;
end $$;
create trigger jobs_moved after update on perdure.jobs referencing new table as new_t
  for each statement execute function perdure.jobs_moved();

create function perdure.job_waits_reject() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception 'a time of a wait must be of the years 2 to 9998 (job %)', new.job_id using errcode = '23514';
end $$;
create trigger job_waits_times before insert or update on perdure.job_waits for each row
  when (least(new.until, new.answered_at, new.opened_at) < '0002-01-01 00:00 UTC'
    or greatest(new.until, new.answered_at, new.opened_at) > '9999-01-01 00:00 UTC')
  execute function perdure.job_waits_reject();

-- An answer wakes the job that is suspended on it: whatever answers a wait sets its answered_at ---------------------------

create function perdure.job_waits_answered() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  insert into perdure.job_queue (job_id, lane, kind, priority, run_at, deadline, status)
    select j.id, j.lane, j.kind, j.priority, least(new.answered_at, perdure.db_now()), j.deadline, j.status from perdure.jobs j
    where j.id = new.job_id and j.status in ('PARKED', 'WAITING_FOR_APPROVAL') and not exists (
      select 1 from perdure.job_waits w where w.job_id = new.job_id and w.kind = 'code' and w.answered_at is null)
    on conflict (job_id) do update set run_at = least(perdure.job_queue.run_at, excluded.run_at);
  return null;
end $$;
create trigger job_waits_answered after update on perdure.job_waits for each row
  when (old.answered_at is null and new.answered_at is not null) execute function perdure.job_waits_answered();

create function perdure.approvals_decided() returns trigger language plpgsql set search_path = pg_catalog, pg_temp
  set enable_seqscan = off as $$
begin
  update perdure.job_waits set answered_at = new.decided_at
    where job_id = new.job_id and subject_id = new.id::text and answered_at is null;
  return null;
end $$;
create trigger approvals_decided after update on perdure.approvals for each row
  when (old.status = 'PENDING' and new.status <> 'PENDING')
  execute function perdure.approvals_decided();

create function perdure.approvals_reject() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception 'approval % is %: the first decision stands', old.id, old.status using errcode = '23514';
end $$;
create trigger approvals_once before update on perdure.approvals for each row
  when (old.status <> 'PENDING' and (new.status <> old.status or new.decided_at is distinct from old.decided_at
    or new.decided_by is distinct from old.decided_by or new.payload_digest <> old.payload_digest))
  execute function perdure.approvals_reject();

-- The log is append-only and dense ---------------------------------------------------------------------------------------

create function perdure.job_events_frozen() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception 'job_events is append-only' using errcode = '23514';
end $$;
create trigger job_events_no_update before update on perdure.job_events
  for each statement execute function perdure.job_events_frozen();
create trigger job_events_no_truncate before truncate on perdure.job_events
  for each statement execute function perdure.job_events_frozen();

-- Only pruning removes jobs and their logs: terminal ones, listed in prune_batch by the same transaction. Asked once per
-- statement: a row trigger would be most of the cost of pruning.
create function perdure.job_events_prunable() returns trigger language plpgsql set search_path = pg_catalog, pg_temp
  set enable_seqscan = off as $$
declare
  doomed uuid := (select o.job_id from (select distinct job_id from old_t) o where not exists (
    select 1 from perdure.prune_batch b join perdure.jobs j on j.id = b.job_id
    where b.job_id = o.job_id and b.transaction_id = pg_current_xact_id()
    and j.status in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER') offset 0) limit 1);
begin
  if doomed is not null then
    raise exception 'job_events is append-only: use perdure db prune (job %)', doomed using errcode = '23514';
  end if;
  return null;
end $$;
create trigger job_events_no_delete after delete on perdure.job_events referencing old table as old_t
  for each statement execute function perdure.job_events_prunable();
-- A part of a log that was deleted to be written again is refused here: at the commit nothing is left of what prune_batch named.
create function perdure.prune_complete() returns trigger language plpgsql security definer
  set search_path = pg_catalog, pg_temp as $$
begin
  if exists (select from perdure.jobs j where j.id = new.job_id)
      or exists (select from perdure.job_events e where e.job_id = new.job_id) then
    raise exception 'jobs is append-only: a prune deletes a job with its whole log (job %)', new.job_id using errcode = '23514';
  end if;
  return null;
end $$;
create constraint trigger prune_batch_complete after insert or update on perdure.prune_batch
  deferrable initially deferred for each row execute function perdure.prune_complete();
create function perdure.jobs_prunable() returns trigger language plpgsql set search_path = pg_catalog, pg_temp
  set enable_seqscan = off as $$
declare
  doomed uuid := (select o.id from old_t o where o.status not in ('COMPLETED', 'FAILED', 'CANCELLED', 'DEADLETTER')
    or not exists (select 1 from perdure.prune_batch b
      where b.job_id = o.id and b.transaction_id = pg_current_xact_id() offset 0) limit 1);
begin
  if doomed is not null then
    raise exception 'jobs is append-only: use perdure db prune (job %)', doomed using errcode = '23514';
  end if;
  return null;
end $$;
create trigger jobs_no_delete after delete on perdure.jobs referencing old table as old_t
  for each statement execute function perdure.jobs_prunable();
create function perdure.jobs_frozen() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception 'jobs cannot be truncated' using errcode = '23514';
end $$;
create trigger jobs_no_truncate before truncate on perdure.jobs for each statement execute function perdure.jobs_frozen();

create function perdure.job_events_dense() returns trigger language plpgsql set search_path = pg_catalog, pg_temp
  set enable_seqscan = off as $$
begin
  if exists (select 1 from new_t n where n.version <> 1 and not exists (
      select 1 from perdure.job_events e where e.job_id = n.job_id and e.version = n.version - 1 offset 0)) then
    raise exception 'gap in job_events' using errcode = '23514';
  end if;
  return null;
end $$;
create trigger job_events_dense after insert on perdure.job_events referencing new table as new_t
  for each statement execute function perdure.job_events_dense();

-- Enqueueing from SQL, for any language ----------------------------------------------------------------------------------

-- Whether two JSON texts hold the same value, however they are spelled; what jsonb cannot hold is compared as text.
create function perdure.same_json(one text, other text) returns boolean language plpgsql immutable strict
  set search_path = pg_catalog, pg_temp as $$
begin
  return one = other or one::jsonb = other::jsonb;
exception when data_exception or program_limit_exceeded then
  return false;
end $$;

-- Whether the job of this key has this payload, for roles that may not read payloads: enqueueing tells them no less.
create function perdure.same_payload(tenant text, kind text, idempotency_key text, payload text) returns boolean
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select perdure.same_json(j.payload::text, $4) from perdure.jobs j
  where j.tenant_id = $1 and j.kind = $2 and j.idempotency_key = $3
$$;

-- The client's enqueue: the same checks, the same meaning, in the caller's transaction and with the caller's rights.
create function perdure.enqueue(
  kind text, payload text default 'null', queue text default 'default', priority int default 5, delay interval default null,
  run_at timestamptz default null, deadline timestamptz default null, idempotency_key text default null,
  max_retries int default null, goal text default null, tenant text default 'default'
) returns uuid language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp as $$
declare
  -- what Python's isprintable() refuses: control and format characters, blanks other than the space, private use
  unprintable constant text := '[\u0001-\u001f\u007f-\u00a0\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u1680'
    '\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ue000-\uf8ff\ufeff\ufff9-\ufffb'
    '\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001-\U000e007f'
    '\U000f0000-\U0010ffff]';
  job constant uuid := perdure.uuid7();
  first constant timestamptz := '0002-01-01 00:00 UTC';
  last constant timestamptz := '9999-01-01 00:00 UTC';
  hash text;
  found_id uuid;
  found_same boolean;
begin
  payload := coalesce(payload, 'null');
  queue := coalesce(queue, 'default');
  priority := coalesce(priority, 5);
  tenant := coalesce(tenant, 'default');
  if kind is null or length(kind) not between 1 and 200 or kind ~ unprintable then
    raise exception 'a handler''s name is 1 to 200 printable characters, got %', quote_nullable(left(kind, 250))
      using errcode = '22023';
  elsif length(queue) not between 1 and 100 or queue ~ unprintable or queue ~ '[: ]' then
    raise exception 'a queue''s name is 1 to 100 characters without '':'' or blanks, got %', quote_literal(left(queue, 150))
      using errcode = '22023', hint = 'for example ''default''';
  elsif priority not between 1 and 9 then
    raise exception 'priority must be a whole number from 1 to 9 (9 is the most urgent), got %', priority using errcode = '22023';
  elsif max_retries not between 0 and 100 then
    raise exception 'max_retries must be a whole number from 0 to 100, got %', max_retries using errcode = '22023';
  elsif extract(epoch from delay) < 0 then
    raise exception 'delay cannot be negative, got %', delay using errcode = '22023', hint = 'leave it out to run now';
  elsif extract(epoch from delay) > 3153600000 then
    raise exception 'delay cannot be over 100 years, got %', delay using errcode = '22023';
  elsif delay is not null and run_at is not null then
    raise exception 'give either delay or run_at, not both' using errcode = '22023';
  elsif run_at not between first and last then
    raise exception 'run_at must be a moment of the years 2 to 9998, got %', run_at using errcode = '22023';
  elsif deadline not between first and last then
    raise exception 'deadline must be a moment of the years 2 to 9998, got %', deadline using errcode = '22023';
  elsif length(idempotency_key) not between 1 and 500 then
    raise exception 'idempotency_key must be text of 1 to 500 characters' using errcode = '22023';
  elsif length(goal) not between 1 and 2000 then
    raise exception 'goal must be text of 1 to 2000 characters' using errcode = '22023';
  elsif length(tenant) not between 1 and 100 or tenant ~ unprintable or tenant ~ '[: ]' then
    raise exception 'a tenant''s name is 1 to 100 characters without '':'' or blanks, got %', quote_literal(left(tenant, 150))
      using errcode = '22023', hint = 'for example ''default''';
  elsif octet_length(convert_to(payload, 'UTF8')) > 1048576 then
    raise exception 'the payload of job ''%'' is % bytes of JSON; the limit is 1048576', kind,
      octet_length(convert_to(payload, 'UTF8'))
      using errcode = '54000', hint = 'store large data elsewhere and pass its address';
  end if;
  if idempotency_key is not null then
    hash := encode(sha256(convert_to(payload, 'UTF8')), 'hex');
  end if;
  loop
    insert into perdure.jobs (id, tenant_id, kind, queue, goal, payload, payload_hash, priority, max_retries, run_at, deadline,
        idempotency_key, note)
      values (job, tenant, enqueue.kind, enqueue.queue, enqueue.goal, enqueue.payload::json, hash, enqueue.priority,
        enqueue.max_retries, coalesce(enqueue.run_at, perdure.db_now() + coalesce(delay, interval '0')), enqueue.deadline,
        enqueue.idempotency_key, json_build_object('actor', session_user, 'via', 'sql'))
      on conflict do nothing;
    if found then
      return job;
    end if;
    select j.id, j.payload_hash = hash or perdure.same_payload(tenant, j.kind, j.idempotency_key, enqueue.payload)
      into found_id, found_same from perdure.jobs j
      where j.tenant_id = tenant and j.kind = enqueue.kind and j.idempotency_key = enqueue.idempotency_key;
    continue when not found;  -- it was pruned between the two statements
    if found_same then
      return found_id;
    end if;
    raise exception 'idempotency key ''%'' of kind ''%'' already belongs to job %, which has another payload',
        idempotency_key, kind, found_id
      using errcode = '23505', schema = 'perdure', table = 'jobs', constraint = 'jobs_idempotency',
        hint = 'use another key for another payload, or send the same payload again';
  end loop;
end $$;

-- The same for a payload that is json or jsonb already. A literal, and a parameter whose type the driver leaves open, is text.
create function perdure.enqueue(
  kind text, payload json, queue text default 'default', priority int default 5, delay interval default null,
  run_at timestamptz default null, deadline timestamptz default null, idempotency_key text default null,
  max_retries int default null, goal text default null, tenant text default 'default'
) returns uuid language sql volatile security invoker set search_path = pg_catalog, pg_temp as $$
  select perdure.enqueue(kind, payload::text, queue, priority, delay, run_at, deadline, idempotency_key, max_retries, goal, tenant)
$$;
create function perdure.enqueue(
  kind text, payload jsonb, queue text default 'default', priority int default 5, delay interval default null,
  run_at timestamptz default null, deadline timestamptz default null, idempotency_key text default null,
  max_retries int default null, goal text default null, tenant text default 'default'
) returns uuid language sql volatile security invoker set search_path = pg_catalog, pg_temp as $$
  select perdure.enqueue(kind, payload::text, queue, priority, delay, run_at, deadline, idempotency_key, max_retries, goal, tenant)
$$;

-- What psql's \d+ and other programs show about tables and columns ----------------------------------------------------------

comment on table perdure.jobs is 'One row for each job, kept until it is pruned. A change of status writes an event.';
comment on column perdure.jobs.id is 'UUIDv7: its order is that of creation.';
comment on column perdure.jobs.created_at is 'When it was enqueued; never changes.';
comment on column perdure.jobs.run_at is 'When it may start for the first time.';
comment on column perdure.jobs.updated_at is 'When anything of the row changed last.';
comment on column perdure.jobs.version is 'The number of its events; of a job that a worker holds, that of its last transition.';
comment on column perdure.jobs.attempt is 'How often it was claimed.';
comment on column perdure.jobs.status is 'The state of the job; only the transitions of docs/states.md pass.';
comment on column perdure.jobs.prev_status is 'The status before the last write; for the triggers.';
comment on column perdure.jobs.priority is '1 to 9; 9 is the most urgent.';
comment on column perdure.jobs.retry_count is 'How many retries were used.';
comment on column perdure.jobs.max_retries is 'How many retries it has, 0 to 100; null until the first claim if the handler decides.';
comment on column perdure.jobs.lost_starts is 'How often a lease was lost before the handler had started.';
comment on column perdure.jobs.next_retry_at is 'When the retry is due; set exactly in RETRY.';
comment on column perdure.jobs.deadline is 'When it fails if it has not finished.';
comment on column perdure.jobs.started_at is 'When a worker claimed it first.';
comment on column perdure.jobs.finished_at is 'When it ended; set exactly in COMPLETED, FAILED, CANCELLED and DEADLETTER.';
comment on column perdure.jobs.pruned_at is 'When its payload, result and checkpoint were pruned and its log was kept.';
comment on column perdure.jobs.ran is 'Seconds that the handler ran in the attempt that completed it.';
comment on column perdure.jobs.suspicion is 'How often it was lost together with other jobs of its worker.';
comment on column perdure.jobs.note is 'Who made the last transition, via what, and why: the payload of its event.';
comment on column perdure.jobs.result is 'What the handler returned, as JSON text; never changes after the end.';
comment on column perdure.jobs.error_message is 'The error; set exactly in FAILED and DEADLETTER.';
comment on column perdure.jobs.error_kind is 'The class of the error: fatal, exhausted, timeout, lease_lost, ...';
comment on column perdure.jobs.tenant_id is 'Whose job it is; every call sees one tenant.';
comment on column perdure.jobs.kind is 'The name of its handler.';
comment on column perdure.jobs.queue is 'The queue that its workers take from.';
comment on column perdure.jobs.lane is 'Where it waits: tenant and queue; derived where it is not given.';
comment on column perdure.jobs.payload is 'The input of the handler as JSON text; never changes.';
comment on column perdure.jobs.goal is 'A title for people.';
comment on column perdure.jobs.payload_hash is 'SHA-256 of the payload, in hex; with an idempotency key.';
comment on column perdure.jobs.idempotency_key is 'The same key, kind and payload of a tenant is one job.';
comment on column perdure.jobs.origin_id is 'The job that it was made from.';
comment on column perdure.jobs.origin_kind is 'How: rerun or fork.';
comment on table perdure.job_events is 'The log: what happened to each job, in order. Rows are never changed.';
comment on column perdure.job_events.job_id is 'The job.';
comment on column perdure.job_events.created_at is 'When it was written.';
comment on column perdure.job_events.version is 'Its place in the log of its job: 1, 2, 3, ... without a gap.';
comment on column perdure.job_events.attempt is 'The attempt that wrote it.';
comment on column perdure.job_events.from_status is 'Of a transition: the status that was left.';
comment on column perdure.job_events.to_status is 'Of a transition: the status that was entered; null for other events.';
comment on column perdure.job_events.ran is 'With job_completed: seconds that the handler ran.';
comment on column perdure.job_events.event_id is 'Marks a repeated append as the same event.';
comment on column perdure.job_events.type is 'What happened: see docs/events.md.';
comment on column perdure.job_events.payload is 'What belongs to it, as JSON text; never a token.';
comment on view perdure.job_history is 'The transitions of all jobs: a view of job_events.';
comment on table perdure.job_queue is 'One row for each job that may start or wake by itself.';
comment on column perdure.job_queue.job_id is 'The job.';
comment on column perdure.job_queue.lane is 'As in jobs.';
comment on column perdure.job_queue.kind is 'As in jobs.';
comment on column perdure.job_queue.priority is 'As in jobs.';
comment on column perdure.job_queue.run_at is 'When it is due.';
comment on column perdure.job_queue.deadline is 'As in jobs.';
comment on column perdure.job_queue.status is 'As in jobs.';
comment on table perdure.job_claims is 'One row for each job that a worker holds: its lease.';
comment on column perdure.job_claims.job_id is 'The job.';
comment on column perdure.job_claims.claimed_at is 'When it was claimed.';
comment on column perdure.job_claims.expires_at is 'When the lease ends unless it is renewed.';
comment on column perdure.job_claims.attempt is 'The attempt.';
comment on column perdure.job_claims.version is 'The head of the log of the job.';
comment on column perdure.job_claims.started is 'Whether the handler has begun.';
comment on column perdure.job_claims.ttl is 'How long a renewal lasts.';
comment on column perdure.job_claims.cancel_requested_at is 'When a cancel was asked for.';
comment on column perdure.job_claims.ends_at is 'The lease is not renewed beyond it.';
comment on column perdure.job_claims.tenant_id is 'As in jobs.';
comment on column perdure.job_claims.worker_id is 'Who holds it.';
comment on column perdure.job_claims.cancel_note is 'The note of the cancel.';
comment on table perdure.approvals is 'What people are asked: approvals, and questions about calls whose outcome is unknown.';
comment on column perdure.approvals.id is 'Of the approval.';
comment on column perdure.approvals.tenant_id is 'As in jobs.';
comment on column perdure.approvals.job_id is 'The job that asks.';
comment on column perdure.approvals.key is 'Its name within the job.';
comment on column perdure.approvals.kind is 'approval or question.';
comment on column perdure.approvals.title is 'What is asked.';
comment on column perdure.approvals.payload is 'What is to be approved, as JSON text.';
comment on column perdure.approvals.payload_digest is 'SHA-256 of the payload, in hex.';
comment on column perdure.approvals.requester is 'Who asks.';
comment on column perdure.approvals.assignees is 'Who may decide; empty: any person.';
comment on column perdure.approvals.status is 'PENDING until it is decided; the first decision stands.';
comment on column perdure.approvals.on_expiry is 'What happens at expires_at: fail, deny or continue.';
comment on column perdure.approvals.on_deny is 'What a denial does: fail the job, or resume it.';
comment on column perdure.approvals.token_hash is 'SHA-256 of the token of its link; the token itself is stored nowhere.';
comment on column perdure.approvals.requested_at is 'When it was asked.';
comment on column perdure.approvals.expires_at is 'Until when it can be decided.';
comment on column perdure.approvals.decided_at is 'When it was decided.';
comment on column perdure.approvals.decided_by is 'By whom.';
comment on column perdure.approvals.decided_via is 'Via what.';
comment on column perdure.approvals.comment is 'Why.';
comment on column perdure.approvals.edited is 'Whether the payload was edited by the decision.';
comment on column perdure.approvals.decision_payload is 'The edited payload.';
comment on table perdure.job_waits is 'The open waits of jobs: timers, approvals, ...';
comment on column perdure.job_waits.job_id is 'The job.';
comment on column perdure.job_waits.key is 'Its name within the job.';
comment on column perdure.job_waits.kind is 'What is waited for.';
comment on column perdure.job_waits.subject_id is 'The id of what is waited for.';
comment on column perdure.job_waits.until is 'When it ends without an answer.';
comment on column perdure.job_waits.opened_at is 'When it began.';
comment on column perdure.job_waits.answered_at is 'When it was answered: that wakes the job.';
comment on table perdure.job_state is 'What a job has saved and used.';
comment on column perdure.job_state.job_id is 'The job.';
comment on column perdure.job_state.checkpoint is 'The last checkpoint, as JSON text.';
comment on column perdure.job_state.progress is 'From 0 to 1.';
comment on column perdure.job_state.progress_text is 'The progress in words.';
comment on column perdure.job_state.tokens is 'Used by the job.';
comment on column perdure.job_state.cost is 'Of the job.';
comment on column perdure.job_state.updated_at is 'When it changed last.';
comment on table perdure.job_incomplete_runs is 'The attempts that ended otherwise than by completing the job.';
comment on column perdure.job_incomplete_runs.job_id is 'The job.';
comment on column perdure.job_incomplete_runs.attempt is 'The attempt.';
comment on column perdure.job_incomplete_runs.worker_id is 'Who ran it.';
comment on column perdure.job_incomplete_runs.started_at is 'When the handler began.';
comment on column perdure.job_incomplete_runs.finished_at is 'When it ended.';
comment on column perdure.job_incomplete_runs.outcome is 'The status that it ended in.';
comment on column perdure.job_incomplete_runs.error_message is 'The error.';
comment on column perdure.job_incomplete_runs.error_kind is 'Its class.';
comment on view perdure.job_runs is 'All attempts that ended: a view of job_incomplete_runs and of job_events.';
comment on table perdure.job_failures is 'The jobs that ended FAILED, DEADLETTER or CANCELLED: a list of them reads no history.';
comment on column perdure.job_failures.job_id is 'The job.';
comment on column perdure.job_failures.status is 'Its status.';
comment on column perdure.job_failures.finished_at is 'When it ended.';
comment on table perdure.workers is 'One row for each worker process; pruned some time after its end.';
comment on column perdure.workers.id is 'Of the worker.';
comment on column perdure.workers.tenant_id is 'Whose jobs it runs.';
comment on column perdure.workers.host is 'The machine.';
comment on column perdure.workers.pid is 'The process.';
comment on column perdure.workers.queues is 'What it takes from.';
comment on column perdure.workers.kinds is 'The handlers that it has.';
comment on column perdure.workers.concurrency is 'How many jobs it runs at a time.';
comment on column perdure.workers.hung is 'Calls that go on though their attempt has ended.';
comment on column perdure.workers.blocked is 'How often its event loop stood still.';
comment on column perdure.workers.version is 'Of the code of its handlers.';
comment on column perdure.workers.losses is 'Started jobs that were taken from it.';
comment on column perdure.workers.grace is 'How long a handler has to stop.';
comment on column perdure.workers.state is 'RUNNING, DRAINING or STOPPED.';
comment on column perdure.workers.command is 'What it was asked to do: drain, stop or stop_now.';
comment on column perdure.workers.started_at is 'When it started.';
comment on column perdure.workers.heartbeat_at is 'When it last said that it runs.';
comment on table perdure.leaders is 'Which worker does a chore that one at a time does.';
comment on column perdure.leaders.tenant_id is 'As in jobs.';
comment on column perdure.leaders.chore is 'Its name.';
comment on column perdure.leaders.holder is 'The worker.';
comment on column perdure.leaders.expires_at is 'Until when.';
comment on table perdure.prune_batch is 'The jobs that a prune is deleting in its transaction; empty otherwise.';
comment on column perdure.prune_batch.job_id is 'The job.';
comment on column perdure.prune_batch.transaction_id is 'The transaction that may delete it.';
