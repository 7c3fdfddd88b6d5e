"""A column is added to `jobs`, from the argument of `enqueue` to what is read back, and the places are counted.

The change is made in a copy of the package: a `label`, like `goal`. It is a text that may be null, as most new columns are.
"""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import perdure
from tests.postgres_server import PostgresServer

SCRIPT = '''
import asyncio, sqlite3, sys
import asyncpg, perdure
from perdure import App, Request
from perdure.model.ids import uuid7
from perdure.model.jobs import JobFilter, NewJob

COPY, URL = sys.argv[1:]
assert perdure.__file__.startswith(COPY), perdure.__file__


async def joined(app):
    """Enqueue in a transaction of the caller's own."""
    if URL.startswith("sqlite"):
        with sqlite3.connect(URL.removeprefix("sqlite:///")) as connection:
            return await app.enqueue("x", elsewhere=True, label="tx", tx=connection)
    connection = await asyncpg.connect(URL)
    async with connection.transaction():
        return await app.enqueue("x", elsewhere=True, label="tx", tx=connection)


async def main():
    async with App(URL, migrate=True) as app:
        ids = {
            "one": await app.enqueue("x", elsewhere=True, label="one"),
            "keyed": await app.enqueue("x", elsewhere=True, label="keyed", idempotency_key="k"),
            "tx": await joined(app),
            None: await app.enqueue("x", elsewhere=True),
        }
        together = await asyncio.gather(*(app.enqueue("x", elsewhere=True, label=f"n-{n}") for n in range(5)))
        ids |= {f"n-{n}": handle for n, handle in enumerate(together)}
        options = [{"label": "a"}, {}, {"label": "c", "idempotency_key": "c"}]
        many = await app.enqueue_many([Request("x", None, {"elsewhere": True, **more}) for more in options])
        ids |= {"a": many[0], "c": many[2]}
        read = {label: (await app.jobs.get(handle.id)).label for label, handle in ids.items()}
        assert read == {label: label for label in ids}, read
        listed = {job.label for job in (await app.jobs.list(limit=100)).items}
        assert listed == set(ids), listed


asyncio.run(main())
print("done")
'''


class Place(NamedTuple):
    """One place that the new column needs: a file, the part of it by a pattern, and what is done there."""

    file: str
    part: str
    change: Callable[[str], str]


def after(line: str, more: str) -> Callable[[str], str]:
    """Put a line below another."""
    return lambda text: text.replace(line, line + more, 1)


def next_to_goal(sql: str) -> str:
    """In every list of a statement that has `goal`, `label` follows it."""
    return re.sub(r"((?:u\.|:)?)\bgoal\b((?:::text\[\]| text)?),", r"\1goal\2, \1label\2,", sql)


def statement(name: str) -> str:
    return rf"^-- name: {name}\n.*?(?=^-- name:|\Z)"


PLACES = (
    Place(
        "model/jobs.py",
        r"^class NewJob.*?(?=^class )",
        after("    goal: str | None = None\n", "    label: str | None = None\n"),
    ),
    Place("model/jobs.py", r"^class Job:.*?(?=^class |\Z)", after("    goal: str | None\n", "    label: str | None\n")),
    Place(
        "store/rows.py",
        r"^def job_of.*?(?=^def )",
        after('        goal=row["goal"],\n', '        label=row["label"],\n'),
    ),
    Place(
        "runtime/client/enqueue.py",
        r"^class EnqueueOptions.*?(?=^_OPTIONS)",
        after("    goal: str\n", "    label: str\n"),
    ),
    Place(
        "runtime/client/enqueue.py",
        r"^        blank = NewJob\(.*?^        \)",
        after('            payload="",\n', '            label=check_text(options.get("label"), "label", 100),\n'),
    ),
    Place(
        "store/postgres/engine/migrations/0001_core.sql",
        r"^create table perdure.jobs .*?^\)",
        after("  goal text,\n", "  label text,\n"),
    ),
    Place("store/postgres/jobs/enqueue.sql", statement("enqueue_many"), next_to_goal),
    Place("store/postgres/jobs/enqueue.sql", statement("enqueue_one"), next_to_goal),
    Place("store/postgres/tx_enqueue/tx_enqueue.sql", statement("enqueue_joined"), next_to_goal),
    Place(
        "store/sqlite/engine/migrations/0001_core.sql",
        r"^create table jobs .*?^\)",
        after("  goal text,\n", "  label text,\n"),
    ),
    Place("store/sqlite/jobs/enqueue.sql", statement("enqueue_many"), next_to_goal),
)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with the new column."""
    place = tmp_path_factory.mktemp("label")
    package = place / "perdure"
    shutil.copytree(Path(perdure.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for file, part, change in PLACES:
        text = (package / file).read_text()
        found = re.search(part, text, re.MULTILINE | re.DOTALL)
        assert found is not None, (file, part)
        changed = change(found[0])
        assert changed != found[0], (file, part)
        (package / file).write_text(text[: found.start()] + changed + text[found.end() :])
    return place


def test_the_places_of_a_column_are_few() -> None:
    """Two records, the function that reads a row, two for the argument; in each dialect the table and its inserts, on PostgreSQL
    three: of arrays, of one job, of JSON."""
    assert len([place for place in PLACES if not place.file.startswith("store/")]) == 4
    assert len([place for place in PLACES if place.file.startswith("store/postgres")]) == 4
    assert len([place for place in PLACES if place.file.startswith("store/sqlite")]) == 2
    assert len(PLACES) == 11
    assert len({place.file for place in PLACES}) == 8


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_a_column_is_added_end_to_end(store: str, copy: Path, tmp_path: Path, postgres: PostgresServer) -> None:
    name = f"label_{os.getpid()}"
    url = postgres.create_database(name) if store == "postgres" else f"sqlite:///{tmp_path}/perdure.db"
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    command = [sys.executable, "-c", SCRIPT, str(copy), url]
    try:
        done = await asyncio.to_thread(
            subprocess.run, command, env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.stdout == "done\n", done.stdout + done.stderr
    finally:
        if store == "postgres":
            postgres.drop_database(name)
