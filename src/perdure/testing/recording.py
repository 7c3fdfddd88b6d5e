"""A recorded job: what an export holds of it, read back."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from perdure.model.approvals import Approval, from_record
from perdure.model.children import ChildState
from perdure.model.errors import InvalidExport
from perdure.model.events import Event
from perdure.model.ids import short_id
from perdure.model.states import Status
from perdure.runtime.export_records import FORMAT, Record


@dataclass(slots=True)
class Recording:
    """One job of an export: how it was enqueued, its log, and how it ended. children: those it spawned that had ended. outputs:
    the large outputs of tools, by job, attempt and path."""

    id: UUID
    kind: str
    payload: Any
    status: Status
    result: Any
    error_message: str | None
    error_kind: str | None
    created_at: datetime
    retry_count: int
    goal: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    events: list[Event] = field(default_factory=list)
    approvals: dict[UUID, Approval] = field(default_factory=dict)
    children: dict[UUID, ChildState] = field(default_factory=dict)
    outputs: dict[tuple[UUID, int, str], Any] = field(default_factory=dict)

    @property
    def short_id(self) -> str:
        """The last 8 hex digits of the job's id."""
        return short_id(self.id)


_TAKEN = tuple(f.name for f in fields(Recording) if f.name not in ("id", "events", "approvals", "children", "outputs"))


def read_recordings(file: Path | str) -> list[Recording]:
    """The jobs in a file that `perdure jobs export` wrote, gzipped if its name ends in .gz. Raises InvalidExport."""
    path = Path(file)
    try:
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        records = [json.loads(line) for line in text.decode().splitlines() if line.strip()]
    except (OSError, EOFError, ValueError) as error:
        raise InvalidExport(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    found = list(recordings_of(records, str(path)))
    if not found:
        raise InvalidExport(f"{path} holds no job")
    return found


def recordings_of(records: Iterable[Any], where: str) -> Iterator[Recording]:
    """The jobs of these records. where: what an error calls them. Raises InvalidExport for what is no export, incomplete, or
    redacted."""
    now: Recording | None = None
    for number, record in enumerate(records, 1):
        if not isinstance(record, dict) or record.get("v") != FORMAT or "record" not in record:
            raise InvalidExport(f"{where}, line {number}: this is no record of an export in format {FORMAT}")
        if record.get("redacted"):
            raise InvalidExport(
                f"{where} was redacted, and what was masked cannot be replayed", hint="export it without --redact"
            )
        try:
            if record["record"] == "job":
                now = _job(record)
            elif now is None or record["job_id"] != str(now.id):
                raise InvalidExport(
                    f"{where}, line {number}: a {record['record']} of a job that did not come before it"
                )
            elif record["record"] == "end":
                _check_whole(now, record, where)
                yield now
                now = None
            else:
                _add(now, record)
        except (KeyError, ValueError, TypeError) as error:
            if isinstance(error, InvalidExport):
                raise
            raise InvalidExport(f"{where}, line {number}: the {record['record']} is damaged: {error!r}") from None
    if now is not None:
        raise InvalidExport(f"{where} ends before the records of job …{now.short_id} do")


def _job(record: Record) -> Recording:
    if record.get("pruned_at") is not None:
        raise InvalidExport(f"the payload of job …{record['job_id'][-8:]} was pruned before the export")
    taken: dict[str, Any] = {name: record.get(name) for name in _TAKEN}
    taken["status"] = Status(record["status"])
    taken["created_at"] = datetime.fromisoformat(record["created_at"])
    if not isinstance(record["kind"], str) or not isinstance(record["retry_count"], int):
        raise TypeError("kind or retry_count")
    return Recording(UUID(record["job_id"]), **taken)


def _add(job: Recording, record: Record) -> None:
    match record["record"]:
        case "event":
            job.events.append(
                Event(
                    job.id,
                    int(record["version"]),
                    record["type"],
                    datetime.fromisoformat(record["at"]),
                    record["payload"],
                    record["attempt"],
                    _status(record["previous_status"]),
                    _status(record["new_status"]),
                    None if record["event_id"] is None else UUID(record["event_id"]),
                )
            )
        case "approval":
            known = {f.name for f in fields(Approval)} - {"job_kind", "job_status"}
            approval = from_record({name: value for name, value in record.items() if name in known})
            job.approvals[approval.id] = approval
        case "output":
            job.outputs[UUID(record["of"]), record["attempt"], record["path"]] = record["content"]
        case "child":
            child = ChildState(
                UUID(record["id"]),
                record["kind"],
                job.id,
                Status(record["status"]),
                None if record["result"] is None else json.dumps(record["result"]),
                record["error"],
                record["error_kind"],
                pruned=False,
            )
            job.children[child.id] = child
        case _:
            pass  # runs and signals are not needed: what a job took of them is in its log


def _check_whole(job: Recording, end: Record, where: str) -> None:
    if [event.version for event in job.events] != list(range(1, len(job.events) + 1)) or end["events"] != len(
        job.events
    ):
        raise InvalidExport(f"{where}: events of job …{job.short_id} are missing")


def _status(text: str | None) -> Status | None:
    return None if text is None else Status(text)
