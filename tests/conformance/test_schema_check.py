"""What the schema check compares a PostgreSQL database with: the catalog of one that was just migrated."""

import pytest

from perdure.store.postgres.schema.schema_check import expected
from tests.conformance.sql_shell import open_shell
from tests.schema_catalog import FILE, as_text, catalog_of


async def test_the_catalog_is_that_of_a_migrated_database(postgres_url: str) -> None:
    made = as_text(await catalog_of(postgres_url))
    assert made == FILE.read_text(), "the migrations make another schema now: python -m tests.schema_catalog"


def test_every_kind_of_object_is_in_the_catalog() -> None:
    kinds = {part.kind for part in expected()}
    assert kinds == {"table", "view", "index", "constraint", "trigger", "function", "type"}
    assert all(part.body for part in expected() if part.kind in ("function", "trigger"))


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ("create index added on perdure.jobs (goal)", "index"),
        ("alter table perdure.jobs add constraint added check (priority > 0)", "constraint"),
        ("create or replace function perdure.uuid7() returns uuid language sql as 'select null::uuid'", "function"),
        ("drop view perdure.job_history", "view"),
    ],
)
async def test_the_catalog_tells_a_changed_schema(postgres_url: str, change: str, differs: str) -> None:
    before = {*await catalog_of(postgres_url)}
    async with open_shell(postgres_url) as shell:
        await shell.run(change)
    assert {part.kind for part in before ^ {*await catalog_of(postgres_url)}} == {differs}
