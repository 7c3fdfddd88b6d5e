"""Whether the schema is still what the migrations made. SQLite keeps the text of each statement, so the texts are compared with
those of a database in memory that was migrated for this."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from functools import cache
from types import MappingProxyType

from perdure.store.fsck.case import Fault
from perdure.store.sqlite.engine.statements import SQL
from perdure.store.statements import load_migrations

THE_CLOCK = "clock"
"""The one view that tests may replace, by a table."""


@cache
def _expected() -> Mapping[str, tuple[str, str]]:
    """Each name with its kind and its text."""
    with closing(sqlite3.connect(":memory:")) as conn:
        conn.executescript(SQL["create_migrations"] + ";")
        for migration in load_migrations("perdure.store.sqlite"):
            conn.executescript(migration.sql)
        return MappingProxyType(_texts(conn))


def _texts(conn: sqlite3.Connection) -> dict[str, tuple[str, str]]:
    return {name: (kind, " ".join(text.split())) for kind, name, _, text in conn.execute(SQL["schema_texts"])}


def names_of_ours(things: Iterable[sqlite3.Row]) -> list[str]:
    """Those of other things (kind, name) whose names the migrations need. Triggers have names of their own."""
    ours = {(kind == "trigger", name.lower()) for name, (kind, _) in _expected().items()}
    return [thing["name"] for thing in things if (thing["kind"] == "trigger", thing["name"].lower()) in ours]


def faults_of_the_schema(conn: sqlite3.Connection) -> Iterator[Fault]:
    """What is missing or changed in the database."""
    found = _texts(conn)
    for name, (kind, text) in _expected().items():
        if name not in found:
            yield Fault("schema-lost", f"{kind} {name} is gone")
        elif found[name] != (kind, text) and name != THE_CLOCK:
            yield Fault("schema-changed", f"{kind} {name} is not what the migrations made")
