-- name: notify
-- only: postgres SQLite has no channels
select pg_notify(channel, payload) from unnest(:channels::text[], :payloads::text[]) n(channel, payload)
