-- What the schema is made of.

-- name: schema_texts
-- only: sqlite PostgreSQL keeps no text of its schema, and compares names
select type as kind, name, tbl_name as place, sql as body from sqlite_master where sql is not null and name not like 'sqlite_%'
