"""The columns of a table of events, and a short summary of each event."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from perdure.cli.format import ICONS, TimeFormat, Times, one_line, short, span
from perdure.cli.job_table import preview
from perdure.cli.output import Cell, Column
from perdure.model.events import Event
from perdure.model.steps import COPIED


def columns(times: Times) -> list[Column[Event]]:
    """The columns of `jobs events`."""
    return [
        Column("version", lambda e: str(e.version), right=True),
        Column("at", lambda e: clock(e, times)),
        Column("type", _typed),
        Column("attempt", lambda e: str(e.attempt or ""), wide=True, right=True),
        Column("what", lambda e: summary(e, times), flexible=True),
    ]


def clock(event: Event, times: Times) -> str:
    """For people the local time of day, else as asked for."""
    if times.format is TimeFormat.RELATIVE:
        return event.at.astimezone().strftime("%H:%M:%S.") + f"{event.at.microsecond // 1000:03d}"
    return times.show(event.at)


def summary(event: Event, times: Times) -> str:
    """The event's payload in a few words: the keys that matter first, then the rest as JSON."""
    if not isinstance(event.payload, dict):
        return preview(event.payload)
    rest = dict(event.payload)
    words = [str(value) for name in ("key", "error", "reason") if (value := rest.pop(name, None))]
    if isinstance(ms := rest.pop("ms", None), int | float):
        words.append(f"in {span(ms / 1000)}")
    named = ("worker", "actor", "via", "kind", "decision")
    words += [f"{name} {value}" for name in named if (value := rest.pop(name, None))]
    if approval := rest.pop("approval", None):
        words.append(f"approval {short(approval)}")
    if isinstance(copied := rest.pop(COPIED, None), dict):
        words.append(f"kept from {short(copied.get('job', ''))} version {copied.get('version')}")
    if isinstance(until := rest.pop("until", rest.pop("next_retry_at", None)), str):
        words.append(_until(until, event, times))
    for name in ("digest", "calls", "idempotency_key", "error_kind", "payload_digest", "recorded", "traceback"):
        rest.pop(name, None)
    if "result" in rest:
        words.append("→ " + preview(rest.pop("result"), 120))
    if rest:
        words.append(preview(json.dumps(rest, ensure_ascii=False), 160))
    return " · ".join(words)


def line(event: Event, times: Times) -> str:
    """One line of a followed log."""
    return f"{event.version:>5}  {clock(event, times)}  {one_line(event.type):<18}  {one_line(summary(event, times))}".rstrip()


def _typed(event: Event) -> Cell:
    style = ICONS[event.new_status][1] if event.new_status else "dim" if event.cls == "trace" else ""
    return event.type, style


def _until(text: str, event: Event, times: Times) -> str:
    """How long from the event on, for people; else the moment."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    if times.format is TimeFormat.RELATIVE:
        return f"for {span(max(0.0, (moment - event.at).total_seconds()))}"
    return f"until {times.show(moment)}"


def as_json(event: Event) -> dict[str, Any]:
    """An event as `-o json` prints it."""
    return {
        "job_id": event.job_id,
        "version": event.version,
        "type": event.type,
        "class": event.cls,
        "at": event.at,
        "attempt": event.attempt,
        "previous_status": event.previous_status,
        "new_status": event.new_status,
        "payload": event.payload,
        "event_id": event.event_id,
    }
