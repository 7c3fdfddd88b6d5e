"""The columns of a table of steps."""

from __future__ import annotations

from perdure.cli.format import Times, span
from perdure.cli.job_table import preview
from perdure.cli.output import Cell, Column
from perdure.model.steps import Step

ICONS = {
    "done": ("✓", "green"),
    "running": ("◐", "cyan"),
    "failed": ("✕", "red"),
    "waiting": ("⏸", "blue"),
    "cut off": ("?", "yellow"),
}


def columns(times: Times) -> list[Column[Step]]:
    """The columns of `jobs steps`."""
    return [
        Column("status", status_cell),
        Column("step", lambda s: s.key, flexible=True),
        Column("kind", lambda s: s.kind),
        Column("number", lambda s: str(s.number), wide=True, right=True),
        Column("at", lambda s: times.show(s.at), right=True),
        Column("time", lambda s: "" if s.seconds is None else span(s.seconds), right=True),
        Column("calls", lambda s: str(s.calls or ""), right=True),
        Column("attempt", lambda s: str(s.attempt or ""), wide=True, right=True),
        Column("result", _result, flexible=True),
    ]


def status_cell(step: Step) -> tuple[str, str]:
    """Icon, word and style; what a fork took over was not done by this job."""
    icon, style = ICONS[step.status]
    return f"{icon} {'kept' if step.kept and step.status == 'done' else step.status}", style


def _result(step: Step) -> Cell:
    return (step.error, "red") if step.error else preview(step.result)
