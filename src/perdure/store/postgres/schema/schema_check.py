"""Whether the schema is still what the migrations made: tables, indexes, constraints, functions, triggers.

The server keeps no text of its schema, so everything is looked for by the names that the migrations give; functions are
compared by their bodies, triggers by the table they are on, the function they call and whether they fire.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from perdure.store.fsck.rules import Fault
from perdure.store.rows import Row
from perdure.store.statements import load_migrations

# A statement begins at the beginning of a line; nothing inside a function does.
_STATEMENT = re.compile(r"^(create|drop|alter)\b(.*?)(?=^(?:create|drop|alter)\b|\Z)", re.MULTILINE | re.DOTALL)
_THING = re.compile(
    r"(\s+or replace)?(?:\s+unique)?\s+(table|view|type|function|trigger|index)\s+(?:if (?:not )?exists\s+)?(?:perdure\.)?(\w+)"
)
_COMMENT = re.compile(r"--[^\n]*")
_CONSTRAINT = re.compile(r"^\s+constraint (\w+)", re.MULTILINE)
_ADDED = re.compile(r"\b(add|drop) constraint (?:if exists )?(\w+)")
_ON = re.compile(r"\bon\s+perdure\.(\w+)")
_CALLS = re.compile(r"\bexecute function\s+perdure\.(\w+)")
_BODY = re.compile(r"\bas\s+(?:\$\$(.*?)\$\$|'([^']*)')", re.DOTALL)

THE_CLOCK = "db_now"
"""The one function that tests may replace."""


@dataclass(frozen=True, slots=True)
class Thing:
    """One named part of the schema: the table it is on, and the body of a function or the function of a trigger."""

    kind: str
    name: str
    table: str | None = None
    body: str | None = None


@cache
def expected() -> tuple[Thing, ...]:
    """What the migrations make, one after the other."""
    things = [Thing("table", "schema_migrations")]
    for migration in load_migrations("perdure.store.postgres"):
        for verb, text in _STATEMENT.findall(migration.sql):
            things = _after(things, verb, text)
    return tuple(things)


def _after(things: list[Thing], verb: str, text: str) -> list[Thing]:
    """What there is after one more statement."""
    match = _THING.match(text)
    if match is None:
        return things
    replaces, kind, name = match[1], match[2], match[3]
    plain = _COMMENT.sub("", text)
    if verb == "alter":
        for change, constraint in _ADDED.findall(plain):
            things = [thing for thing in things if (thing.kind, thing.name) != ("constraint", constraint)]
            if change == "add":
                things.append(Thing("constraint", constraint, name))
        return things
    if verb == "drop" or replaces:
        things = [t for t in things if (t.kind, t.name) != (kind, name) and not (kind == "table" and t.table == name)]
    if verb == "drop":
        return things
    on, body = _ON.search(plain), None
    if kind == "function" and (found := _BODY.search(text)):
        body = found[1] if found[1] is not None else found[2]
    elif kind == "trigger" and (found := _CALLS.search(plain)):
        body = found[1]
    made = [Thing(kind, name, on[1] if on and kind in ("trigger", "index") else None, body)]
    if kind == "table":
        made += [Thing("constraint", c, name) for c in (f"{name}_pkey", *_CONSTRAINT.findall(plain))]
    return things + made


def faults_of_the_schema(rows: Sequence[Row]) -> list[Fault]:
    """What is missing or changed in what a database has: the rows of `schema_objects`."""
    found: dict[tuple[str, str, str | None], list[Row]] = {}
    for row in rows:
        found.setdefault((row["kind"], row["name"], row["place"]), []).append(row)
    return list(_compared(found))


def _compared(found: Mapping[tuple[str, str, str | None], Sequence[Row]]) -> Iterator[Fault]:
    lost = {thing.name for thing in expected() if thing.kind == "table" and ("table", thing.name, None) not in found}
    for thing in expected():
        those = found.get((thing.kind, thing.name, thing.table), ())  # functions may share a name
        where = f"{thing.kind} {thing.name}" + (f" on {thing.table}" if thing.table else "")
        if not those:
            if thing.table not in lost:  # it went with its table
                yield Fault("schema-lost", f"{where} is gone")
        elif not all(row["works"] for row in those):
            yield Fault("schema-off", f"{where} is there, and does not work")
        elif thing.body not in (None, *(row["body"] for row in those)) and thing.name != THE_CLOCK:
            yield Fault("schema-changed", f"{where} is not what the migrations made")
