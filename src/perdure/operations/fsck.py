"""Checking and repairing the database."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perdure.model.fsck_faults import Finding
from perdure.operations.registry import Role, operation

if TYPE_CHECKING:
    from perdure import Client


@dataclass(slots=True)
class FsckSummary:
    """What a check found. jobs: how many were examined. remaining: faults that are not repaired; fixable: those of them that a
    repair would repair. advice: what to do about faults that no repair repairs, by code."""

    jobs: int = 0
    remaining: int = 0
    fixed: int = 0
    fixable: int = 0
    advice: dict[str, str] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        """Count one more finding."""
        if finding.fixed:
            self.fixed += 1
            return
        if finding.advice and not finding.fixable:
            self.advice[finding.code] = finding.advice
        if not finding.note:
            self.remaining += 1
            self.fixable += finding.fixable


@operation("database.fsck", role=Role.VIEWER)
async def check_database(client: Client, *, deep: bool = False) -> AsyncGenerator[Finding | FsckSummary, None]:
    """Check that every job fits its log, and that nothing around the jobs is missing or left over. It only reads.

    Yields the findings as they come, then a summary. A database in order gives nothing but notes.
    deep: read the content of every file of a task as well.
    """
    async for found in _findings(client, fix=False, deep=deep):
        yield found


@operation("database.repair", role=Role.ADMIN)
async def repair_database(client: Client, *, deep: bool = False) -> AsyncGenerator[Finding | FsckSummary, None]:
    """Check the database as `database.fsck` does, and repair what is safe, each thing in a transaction of its own."""
    async for found in _findings(client, fix=True, deep=deep):
        yield found


async def _findings(client: Client, *, fix: bool, deep: bool) -> AsyncGenerator[Finding | FsckSummary, None]:
    summary = FsckSummary()
    findings = client.database.fsck(fix=fix, deep=deep)
    async for finding in findings:
        summary.add(finding)
        yield finding
    summary.jobs = findings.jobs
    yield summary
