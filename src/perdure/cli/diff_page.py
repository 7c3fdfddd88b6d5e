"""The page of `jobs diff`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from rich.text import Text

from perdure.cli.format import Times, clean_text, one_line, short, span
from perdure.cli.job_table import preview
from perdure.cli.output import Cell, Column, laid_out, status_cell
from perdure.model.comparison import Change, JobDiff, StepDiff
from perdure.model.jobs import Job

PARTS = ("input", "steps", "result", "outcome")
PRUNED = ("input", "result")
"""What goes when a job is pruned and its log is kept."""
MOST_CHANGES = 50
"""Differences of an input or result on the page."""
MARKS = {"same": ("=", "dim"), "changed": ("~", "yellow"), "only_a": ("-", "red"), "only_b": ("+", "green")}


def as_json(found: JobDiff, parts: Iterable[str]) -> dict[str, Any]:
    """Both jobs in brief, whether they are equal in these parts, and the parts."""
    chosen = {part: getattr(found, part) for part in parts}
    shown = ("id", "kind", "status", "version", "origin_kind", "origin_id", "created_at", "pruned_at")
    jobs = {name: {k: getattr(job, k) for k in shown} for name, job in (("a", found.a), ("b", found.b))}
    equal = not any(_differs(part, value) for part, value in chosen.items())
    return {**jobs, "equal": equal, **chosen}


def _differs(part: str, value: Sequence[Any]) -> bool:
    return any(s.change != "same" for s in value) if part == "steps" else bool(value)


class DiffPage:
    """Lays a comparison out for people."""

    def __init__(self, times: Times, width: int | None) -> None:
        self._times = times
        self._width = width
        self._text = Text()

    def of(self, found: JobDiff, parts: Sequence[str]) -> Text:
        """Both jobs, then each part."""
        self._table([("a", found.a), ("b", found.b)], self._job_columns(), indent=0)
        gone = " and ".join(dict.fromkeys(short(job.id) for job in (found.a, found.b) if job.pruned_at))
        for part in parts:
            self._text.append(f"\n{part.capitalize()}\n", "bold")
            value = getattr(found, part)
            if part == "steps":
                self._steps(value)
            elif gone and part in PRUNED:
                self._text.append(f"  not known: pruned from {gone}\n", "dim")
            elif value:
                self._changes(value)
            else:
                self._text.append("  the same\n", "dim")
        return self._text

    def _job_columns(self) -> list[Column[tuple[str, Job]]]:
        show = self._times.show
        return [
            Column("", lambda r: MARKS[f"only_{r[0]}"]),
            Column("status", lambda r: status_cell(r[1].status)),
            Column("job", lambda r: f"{short(r[1].id)} {r[1].goal or ''}".rstrip(), flexible=True),
            Column("kind", lambda r: r[1].kind, flexible=True),
            Column("created", lambda r: show(r[1].created_at), right=True),
            Column("took", lambda r: _took(r[1]), right=True),
            Column("origin", lambda r: f"{r[1].origin_kind} of {short(r[1].origin_id)}" if r[1].origin_id else ""),
        ]

    def _steps(self, steps: Sequence[StepDiff]) -> None:
        same = sum(s.change == "same" for s in steps)
        differing = [s for s in steps if s.change != "same"]
        if differing:
            self._table(differing, STEP_COLUMNS, indent=2)
        if same or not steps:
            rest = f"{same} {'step is' if same == 1 else 'steps are'} the same" if steps else "neither has recorded any"
            self._text.append(f"  {rest}\n", "dim")

    def _changes(self, changes: Sequence[Change]) -> None:
        for change in changes[:MOST_CHANGES]:
            mark, style = MARKS[change.change]
            path = f"{one_line(change.path)}: " if change.path else ""
            values = [
                _value(v) for v, absent in ((change.a, "only_b"), (change.b, "only_a")) if change.change != absent
            ]
            self._text.append(f"  {mark} {path}{' → '.join(values)}\n", style)
        if len(changes) > MOST_CHANGES:
            self._text.append(f"  … {len(changes) - MOST_CHANGES} more (-o json prints all)\n", "dim")

    def _table(self, rows: Sequence[Any], columns: Sequence[Column[Any]], *, indent: int) -> None:
        room = None if self._width is None else self._width - indent
        for line in laid_out([[c.cell(r) for c in columns] for r in rows], columns, room).split("\n"):
            self._text.append(" " * indent).append_text(line).append("\n")


def _value(value: Any) -> str:
    text = clean_text(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= 400 else text[:399] + "…"


def _took(job: Job) -> str:
    if job.started_at is None or job.finished_at is None:
        return ""
    return span((job.finished_at - job.started_at).total_seconds())


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else span(seconds)


def _said(step: StepDiff) -> Cell:
    if step.change == "changed":
        said = f"{', '.join(step.what)} differ{'s' if len(step.what) == 1 and step.what != ('arguments',) else ''}"
        if "result" in step.what and step.a and step.b:
            said += f": {preview(step.a.result, 80)} → {preview(step.b.result, 80)}"
        return said
    only = step.a or step.b
    return preview(only.error or only.result) if only else ""


STEP_COLUMNS: list[Column[StepDiff]] = [
    Column("", lambda s: MARKS[s.change]),
    Column("step", lambda s: s.key, flexible=True),
    Column("a", lambda s: f"{s.a.status} {_seconds(s.a.seconds)}".rstrip() if s.a else ""),
    Column("b", lambda s: f"{s.b.status} {_seconds(s.b.seconds)}".rstrip() if s.b else ""),
    Column("what", _said, flexible=True),
]
