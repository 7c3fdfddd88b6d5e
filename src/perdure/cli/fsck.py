"""`perdure fsck`: prove that what is stored can be so, and repair what is safe."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import typer
from rich.text import Text

from perdure.cli.context import Cli
from perdure.cli.errors import Exit
from perdure.cli.format import bare, one_line
from perdure.cli.options import command, group
from perdure.cli.output import Mode, as_dict
from perdure.model.fsck_faults import Finding

app = group("Prove that every job fits its log, and repair what is safe.", "perdure fsck")

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
    fix: Annotated[
        bool, typer.Option("--fix", help="Repair what is safe, each thing in a transaction of its own")
    ] = False,
) -> int:
    """Prove that every job fits its log, and repair what is safe.

    A job's row is what its log adds up to; leases, queue, waits, approvals and the schema are there and fit.
    One line per fault: its code, the job, what is wrong. It only reads (but for --fix), and workers may go on meanwhile.
    Exit code 0 if the database is in order or was brought into order, 1 if faults remain.
    """
    out = cli.out
    tally = Tally()
    async with cli.existing() as client:
        findings = client.database.fsck(fix=fix)
        async for finding in findings:
            tally.add(finding)
            match out.mode:
                case Mode.JSON:
                    tally.kept.append(finding)
                case Mode.JSONL:
                    out.json_line(as_json(finding))
                case Mode.ID:
                    print(finding.job_id or "")
                case Mode.TABLE | Mode.WIDE:
                    out.print(line(finding))
                case Mode.NONE:
                    pass
        tally.jobs = findings.jobs
    if out.mode is Mode.JSON:
        out.json(tally.as_json())
    _sum_up(cli, tally, fix=fix)
    return Exit.FAILURE if tally.left else Exit.OK


@dataclass(slots=True)
class Tally:
    """What a check came to."""

    jobs: int = 0
    left: int = 0
    fixed: int = 0
    fixable: int = 0
    advice: dict[str, str] = field(default_factory=dict)
    """What to do about the faults that remain, by code."""
    kept: list[Finding] = field(default_factory=list)
    """The findings themselves, where they are printed at the end."""

    def add(self, finding: Finding) -> None:
        """One more finding."""
        if finding.fixed:
            self.fixed += 1
            return
        if finding.advice and not finding.fixable:
            self.advice[finding.code] = finding.advice
        if not finding.note:
            self.left += 1
            self.fixable += finding.fixable

    def as_json(self) -> dict[str, Any]:
        """The whole check as one document."""
        return {
            "ok": not self.left,
            "jobs": self.jobs,
            "faults": self.left + self.fixed,
            "fixed": self.fixed,
            "items": [as_json(finding) for finding in self.kept],
        }


def as_json(finding: Finding) -> dict[str, Any]:
    """A finding for programs."""
    return {**as_dict(finding), "note": finding.note}


def line(finding: Finding) -> Text:
    """A finding on one line: what became of it, its code, the job's short id, what is wrong."""
    word, style = ("fixed", "green") if finding.fixed else ("note", "yellow") if finding.note else ("fault", "red")
    text = Text(f"{word:<5} ", style)
    text.append(f"{finding.code:<16} ", "bold")
    text.append(f"{bare(finding.job_id) if finding.job_id else NO_JOB}  ")
    return text.append(one_line(finding.text))


def _sum_up(cli: Cli, tally: Tally, *, fix: bool) -> None:
    out = cli.out
    if not out.for_people:
        return
    examined = f"{tally.jobs} job{'s' * (tally.jobs != 1)} examined"
    for code, advice in tally.advice.items():
        out.note(f"{code}: {advice}")
    if not tally.left and not tally.fixed:
        out.note(f"{examined}: all is well")
        return
    out.note(f"{examined}: {_faults(tally.left + tally.fixed)}, {tally.fixed} repaired")
    if tally.fixable and not fix:
        out.note(f"{tally.fixable} can be repaired: {cli.next('fsck --fix')}")


def _faults(number: int) -> str:
    return "1 fault" if number == 1 else f"{number} faults"
