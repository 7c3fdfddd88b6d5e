"""What the migrations of PostgreSQL are understood to make: also those that will change what earlier ones made."""

import pytest

from perdure.store.postgres.schema import schema_check as shape
from perdure.store.postgres.schema.schema_check import Thing
from perdure.store.protocol import Migration

FIRST = """
create type perdure.mood as enum ('GOOD', 'BAD');
create table perdure.cats (  -- create table perdure.dogs
  id uuid primary key,
  name text,
  constraint cats_name check (name <> '')
) with (fillfactor = 50);
create unique index cats_by_name on perdure.cats (name) where name is not null;
create function perdure.purr() returns trigger language plpgsql as $$
begin
  drop table nothing;
  return null;
end $$;
create function perdure.purr(loud int) returns int language sql as 'select 1';
create trigger cats_purr after insert on perdure.cats for each row execute function perdure.purr();
create view perdure.tame as select * from perdure.cats;
"""
SECOND = """
drop trigger cats_purr on perdure.cats;
drop index perdure.cats_by_name;
alter table perdure.cats drop constraint cats_name, add column age int, add constraint cats_age check (age > 0);
create or replace function perdure.purr(loud int) returns int language sql as 'select 2';
drop view if exists perdure.tame;
create table if not exists perdure.dogs (id uuid primary key);
drop table perdure.dogs;
"""


def made_by(monkeypatch: pytest.MonkeyPatch, *scripts: str) -> set[tuple[str, str, str | None, str | None]]:
    migrations = [Migration(n, "x", "x", sql) for n, sql in enumerate(scripts, 1)]
    monkeypatch.setattr(shape, "load_migrations", lambda _: migrations)
    shape.expected.cache_clear()
    try:
        things = shape.expected()
    finally:
        shape.expected.cache_clear()
    assert things[0] == Thing("table", "schema_migrations")
    return {(t.kind, t.name, t.table, t.body) for t in things[1:]}


def test_what_one_migration_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    purr = "\nbegin\n  drop table nothing;\n  return null;\nend "
    assert made_by(monkeypatch, FIRST) == {
        ("type", "mood", None, None),
        ("table", "cats", None, None),
        ("constraint", "cats_pkey", "cats", None),
        ("constraint", "cats_name", "cats", None),
        ("index", "cats_by_name", "cats", None),
        ("function", "purr", None, purr),
        ("function", "purr", None, "select 1"),
        ("trigger", "cats_purr", "cats", "purr"),
        ("view", "tame", None, None),
    }


def test_what_a_later_one_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    assert made_by(monkeypatch, FIRST, SECOND) == {
        ("type", "mood", None, None),
        ("table", "cats", None, None),
        ("constraint", "cats_pkey", "cats", None),
        ("constraint", "cats_age", "cats", None),
        ("function", "purr", None, "select 2"),
    }
