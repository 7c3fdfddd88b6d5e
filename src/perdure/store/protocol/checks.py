"""What fsck needs. Part of `protocol.Store`."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from perdure.model.fsck_faults import CheckPage, Finding


class CheckStore(Protocol):
    """Checks whether what is stored is consistent, and repairs it if it is known what is right. Every fault is in
    `model.fsck_faults.FAULTS`."""

    async def check(self, *, after: str | None = None, limit: int = 200, deep: bool = False) -> CheckPage:
        """Check the next `limit` ids after the one where the page before ended; the first page (after=None) checks the schema
        as well. Changes nothing.

        - Each page is one consistent snapshot. A job that seems damaged is read again in another one, and only what is still
          wrong there is reported: concurrent work is never reported as damage.
        - Memory does not grow with the number of jobs, nor with the payloads of a log.
        - Blobs are looked for on this machine. deep: every content of a file is read, and its hash compared.
        - Jobs of other tenants are left out; rows that belong to no job are reported to every tenant.
        Raises as `check_schema`.
        """
        ...

    async def blocked_by(self) -> str | None:
        """What keeps the processes of perdure from taking turns in writing, for longer than a moment: 'process 12 (python
        app.py, stopped)' or 'an unknown process'. None: nothing does, as on PostgreSQL and in memory, where they take no turns.
        """
        ...

    async def repair(self, job_id: UUID | None) -> list[Finding]:
        """Repair what is safe of one job and return its findings, repaired ones with fixed=True; job_id None: the same for the
        findings that belong to no job.

        - Each repair is a transaction of its own, under the locks of the job: the fault is looked for again there, and the
          repair is committed only if it is gone afterwards.
        - A job whose row or log is damaged is not changed, nor are its other rows.
        """
        ...
