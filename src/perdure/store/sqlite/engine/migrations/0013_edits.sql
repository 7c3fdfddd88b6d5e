-- Edits: the input of a job may change before its first claim, together with an event, also where it has an
-- idempotency key, whose hash follows.

drop trigger jobs_payload_kept;
create trigger jobs_payload_kept after update of payload, payload_hash on jobs
when (new.payload_hash is not old.payload_hash
  or (new.payload <> old.payload and (old.pruned_at is not null or new.pruned_at is null or new.payload <> 'null')))
  and not (old.status = 'PENDING' and new.status = 'PENDING' and new.version > old.version)
begin
  select raise(abort, 'the payload of a job cannot be rewritten');
end;
