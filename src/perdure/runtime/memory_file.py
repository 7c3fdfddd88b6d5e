"""An export of long-term memory: JSON lines, one for each entry between a first and a last one. The last one has a hash: so a
file that was cut off or changed is not taken for whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from perdure.model.errors import InvalidInput
from perdure.model.memory import MemoryEntry, MemoryLeave, NewMemory, parse_scope
from perdure.runtime.memory_checks import leave_of, new_memory
from perdure.runtime.validation import check_moment, check_text

FORMAT = "perdure-memory"
VERSION = 1
MOST_NAME = 10_000
"""Characters of the name of who wrote an entry."""


class Imported(NamedTuple):
    """An entry of an export. leave: how it was left, if searches did not find it."""

    new: NewMemory
    leave: MemoryLeave | None


class Writer:
    """Makes the lines of an export, without line ends."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._entries = 0

    def first(self) -> str:
        """The first line."""
        return self._line({"record": FORMAT, "version": VERSION})

    def entry(self, entry: MemoryEntry) -> str:
        """The line of an entry."""
        self._entries += 1
        return self._line(
            {
                "record": "entry",
                "id": str(entry.id),
                "scope": entry.scope,
                "text": entry.text,
                "tags": entry.tags,
                "source": entry.source,
                "kind": entry.kind,
                "job_id": _text(entry.job_id),
                "created_by": entry.created_by,
                "created_at": entry.created_at.isoformat(),
                "pinned_at": None if entry.pinned_at is None else entry.pinned_at.isoformat(),
                "archived_at": None if entry.archived_at is None else entry.archived_at.isoformat(),
                "superseded_by": _text(entry.superseded_by),
            }
        )

    def last(self) -> str:
        """The last line."""
        return json.dumps({"record": "end", "entries": self._entries, "sha256": self._hash.hexdigest()})

    def _line(self, record: dict[str, Any]) -> str:
        line = json.dumps(record, ensure_ascii=False)
        self._hash.update(line.encode() + b"\n")
        return line


def read_export(lines: Iterable[str]) -> list[Imported]:
    """The entries of an export. All of it is checked before any of it is returned. Raises InvalidInput, which names the line."""
    found: list[Imported] = []
    ids: set[UUID] = set()
    hashed = hashlib.sha256()
    ended = False
    for number, line in enumerate(_whole(lines), 1):
        if ended:
            raise _damaged(number, "there is more after its last line")
        record = _record(number, line)
        if (number == 1) != (record.get("record") == FORMAT):
            raise _damaged(number, f"its first line must be of '{FORMAT}'")
        if number == 1 and record.get("version") != VERSION:
            raise _damaged(number, f"its version is {record.get('version')!r:.60}, and this perdure reads {VERSION}")
        if record["record"] == "end":
            if (record.get("entries"), record.get("sha256")) != (len(found), hashed.hexdigest()):
                raise _damaged(number, "its lines are not those that were exported")
            ended = True
            continue
        hashed.update(line.encode(errors="surrogatepass") + b"\n")
        if number > 1:
            entry = _entry(number, record)
            if entry.new.id in ids:
                raise _damaged(number, f"entry {entry.new.id} is in it twice")
            ids.add(entry.new.id)
            found.append(entry)
    if not ended:
        raise InvalidInput("the export of memory is cut off: its last line is missing", hint="export it again")
    return found


def _whole(lines: Iterable[str]) -> Iterator[str]:
    return (line.rstrip("\r\n") for line in lines if line.strip())


def _record(number: int, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict) or record.get("record") not in (FORMAT, "entry", "end"):
        raise _damaged(number, "that is no record of it")
    return record


def _entry(number: int, record: dict[str, Any]) -> Imported:
    try:
        archived_at = _time(record["archived_at"], "archived_at")
        new = new_memory(
            record["text"],
            scope=parse_scope(record["scope"]),
            created_by=check_text(record["created_by"], "created_by", MOST_NAME) or "unknown",
            tags=record["tags"],
            source=record["source"],
            kind=record["kind"],
        )._replace(
            id=UUID(record["id"]),
            job_id=None if record["job_id"] is None else UUID(record["job_id"]),
            created_at=check_moment(datetime.fromisoformat(record["created_at"]), "created_at"),
            pinned_at=_time(record["pinned_at"], "pinned_at"),
        )
        by = None if record["superseded_by"] is None else UUID(record["superseded_by"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(number, f"its entry is incomplete or invalid: {error}") from None
    leave = None if archived_at is None else leave_of(new.id, new.text, by)._replace(archived_at=archived_at)
    return Imported(new, leave)


def _time(text: str | None, name: str) -> datetime | None:
    return None if text is None else check_moment(datetime.fromisoformat(text), name)


def _text(id: UUID | None) -> str | None:
    return None if id is None else str(id)


def _damaged(number: int, why: str) -> InvalidInput:
    return InvalidInput(
        f"line {number} of the export of memory: {why}",
        hint="nothing was imported; export it again, or use another copy",
    )
