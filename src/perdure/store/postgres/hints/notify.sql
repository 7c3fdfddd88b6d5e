-- name: notify
-- only: postgres SQLite has no channels
-- Hints need not reach the disk: their commit waits for none.
select set_config('synchronous_commit', 'off', true), pg_notify(channel, payload)
from unnest(:channels::text[], :payloads::text[]) n(channel, payload)
