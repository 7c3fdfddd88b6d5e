-- Edits: the input of a job may change before its first claim, together with an event, also where it has an
-- idempotency key, whose hash follows.

drop trigger jobs_c_payload on perdure.jobs;
create trigger jobs_c_payload before update of payload, payload_hash on perdure.jobs for each row
  when ((new.payload_hash is distinct from old.payload_hash or (new.payload::text <> old.payload::text
    and (old.pruned_at is not null or new.pruned_at is null or new.payload::text <> 'null')))
    and not (old.status = 'PENDING' and new.status = 'PENDING' and new.version > old.version))
  execute function perdure.jobs_reject_payload();
comment on column perdure.jobs.payload is 'The input of the handler as JSON text; never changes after the first claim.';
