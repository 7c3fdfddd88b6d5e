"""Whether the schema is still what the migrations made: tables, views, types, indexes, constraints, functions, triggers.

What they made is kept in catalog.json, as the catalog of a freshly migrated database tells it; `python -m tests.schema_catalog`
writes it again, and a test compares the two. Functions are compared by a digest of their bodies; triggers by their tables, the
functions they call and whether they fire.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from perdure.store.fsck.case import Fault
from perdure.store.postgres.engine.statements import PACKAGE
from perdure.store.rows import Row

CATALOG = "catalog.json"

CLOCK = "db_now"
"""The one function that tests may replace."""


@dataclass(frozen=True, slots=True, order=True)
class SchemaObject:
    """One named part of the schema. table: the one it is on. body: the digest of a function's, or the function of a trigger."""

    kind: str
    name: str
    table: str = ""
    body: str = ""


@cache
def expected() -> tuple[SchemaObject, ...]:
    """Every part of a freshly migrated schema."""
    text = resources.files(PACKAGE).joinpath("schema", CATALOG).read_text(encoding="utf-8")
    return tuple(SchemaObject(*part) for part in json.loads(text))


def known_tables() -> list[str]:
    """The names of the schema's tables and views."""
    return [part.name for part in expected() if part.kind in ("table", "view")]


def object_of(row: Row) -> SchemaObject:
    """A row of `schema_objects`."""
    body = row["body"] or ""
    if row["kind"] == "function":
        body = hashlib.sha256(body.encode()).hexdigest()
    return SchemaObject(row["kind"], row["name"], row["place"] or "", body)


def faults_of_the_schema(rows: Sequence[Row]) -> list[Fault]:
    """What is missing or changed in what a database has: the rows of `schema_objects`."""
    found: dict[tuple[str, str, str], list[tuple[SchemaObject, Row]]] = {}
    for row in rows:
        part = object_of(row)
        found.setdefault((part.kind, part.name, part.table), []).append((part, row))
    return list(_compared(found))


def _compared(found: dict[tuple[str, str, str], list[tuple[SchemaObject, Row]]]) -> Iterator[Fault]:
    for kind, name, table in found:
        if kind == "rule":
            yield Fault(
                "schema-changed", f"rule {name} on {table} is not of the migrations: it may swallow what is written"
            )
        elif kind == "row-level security":
            yield Fault("schema-off", f"row-level security hides rows of {name} from the role that checks")
    lost = {part.name for part in expected() if part.kind == "table" and ("table", part.name, "") not in found}
    for part in expected():
        there = found.get((part.kind, part.name, part.table), ())  # functions may share a name
        where = f"{part.kind} {part.name}" + (f" on {part.table}" if part.table else "")
        if not there:
            if part.table not in lost:  # it went with its table
                yield Fault("schema-lost", f"{where} is gone")
        elif not all(row["works"] for _, row in there):
            yield Fault("schema-off", f"{where} is there, and does not work")
        elif part.body and part.name != CLOCK and part.body not in {other.body for other, _ in there}:
            yield Fault("schema-changed", f"{where} is not what the migrations made")
