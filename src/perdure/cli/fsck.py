"""`perdure fsck`: check that every job fits its log, and repair what is safe."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from perdure.cli.context import Cli
from perdure.cli.errors import Exit
from perdure.cli.format import bare, one_line
from perdure.cli.options import command, group
from perdure.cli.output import Mode, as_dict
from perdure.model.fsck_faults import Finding
from perdure.operations.fsck import FsckSummary, check_database, repair_database

app = group("Check that every job fits its log, and repair what is safe.", "perdure fsck")

NO_JOB = "-" * 8


@command(
    app,
    "fsck",
    example="""\
perdure fsck
perdure fsck --fix --db postgresql://localhost/jobs
perdure fsck -o jsonl | jq -r 'select(.fixed | not) | .job_id'""",
)
async def fsck(
    cli: Cli,
    fix: Annotated[bool, typer.Option("--fix", help="Repair what is safe, each repair in its own transaction")] = False,
    deep: Annotated[bool, typer.Option("--deep", help="Also read the content of every file of a task")] = False,
) -> int:
    """Check that every job fits its log, and repair what is safe.

    It checks that a job's row follows from its log, and that leases, queue, waits, approvals and the schema are complete.
    One line per fault: its code, the job, what is wrong. Without --fix it only reads. Workers may run meanwhile.
    Exit code 0 if no faults remain, else 1.
    """
    out = cli.out
    kept: list[Finding] = []
    summary = FsckSummary()
    async with cli.existing() as client:
        async for found in repair_database(client, deep=deep) if fix else check_database(client, deep=deep):
            if isinstance(found, FsckSummary):
                summary = found
                continue
            match out.mode:
                case Mode.JSON:
                    kept.append(found)
                case Mode.JSONL:
                    out.json_line(as_json(found))
                case Mode.ID:
                    print(found.job_id or "")
                case Mode.TABLE | Mode.WIDE:
                    out.print(line(found))
                case Mode.NONE:
                    pass
    if out.mode is Mode.JSON:
        out.json(summary_json(summary, kept))
    _sum_up(cli, summary, fix=fix)
    return Exit.FAILURE if summary.remaining else Exit.OK


def summary_json(summary: FsckSummary, findings: list[Finding]) -> dict[str, Any]:
    """The whole check as one document."""
    return {
        "ok": not summary.remaining,
        "jobs": summary.jobs,
        "faults": summary.remaining + summary.fixed,
        "fixed": summary.fixed,
        "items": [as_json(finding) for finding in findings],
    }


def as_json(finding: Finding) -> dict[str, Any]:
    """A finding for programs."""
    return {**as_dict(finding), "note": finding.note}


def line(finding: Finding) -> Text:
    """A finding on one line: fixed, note or fault, its code, the job's short id, what is wrong."""
    word, style = ("fixed", "green") if finding.fixed else ("note", "yellow") if finding.note else ("fault", "red")
    text = Text(f"{word:<5} ", style)
    text.append(f"{finding.code:<16} ", "bold")
    text.append(f"{bare(finding.job_id) if finding.job_id else NO_JOB}  ")
    return text.append(one_line(finding.text))


def _sum_up(cli: Cli, summary: FsckSummary, *, fix: bool) -> None:
    out = cli.out
    if not out.for_people:
        return
    examined = f"{summary.jobs} job{'s' * (summary.jobs != 1)} examined"
    for code, advice in summary.advice.items():
        out.note(f"{code}: {advice}")
    if not summary.remaining and not summary.fixed:
        out.note(f"{examined}: no faults")
        return
    out.note(f"{examined}: {_faults(summary.remaining + summary.fixed)}, {summary.fixed} fixed")
    if summary.fixable and not fix:
        out.note(f"{summary.fixable} can be fixed: {cli.next('fsck --fix')}")


def _faults(number: int) -> str:
    return "1 fault" if number == 1 else f"{number} faults"
