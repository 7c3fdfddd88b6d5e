"""The contract of fsck: part of `protocol.Store`, kept here for its size. The promises common to all methods hold."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from perdure.model.fsck_faults import CheckPage, Finding


class CheckStore(Protocol):
    """Whether what is stored can be so, and repairs where it is known what is right. Every fault is in
    `model.fsck_faults.FAULTS`."""

    async def check(self, *, after: str | None = None, limit: int = 200) -> CheckPage:
        """Examine the next `limit` ids after the one where the page before ended; the first page (after=None) examines
        the schema as well. Changes nothing.

        - Each page is one consistent snapshot. A job that seems damaged is looked at again in another one, and only what is
          still wrong there is told: concurrent work is never taken for damage.
        - Memory does not grow with the number of jobs, nor with the payloads of a log.
        - Jobs of other tenants are left out; rows that belong to no job at all are told to every tenant.
        Raises as `check_schema`.
        """
        ...

    async def repair(self, job_id: UUID | None) -> list[Finding]:
        """Repair what is safe of one job and return what was found there, what was repaired with fixed=True; or (None)
        repair what is safe of the database as a whole, and return that.

        - Each repair is a transaction of its own, under the locks of the job: the fault is looked for again there, and the
          repair is committed only if it is gone afterwards.
        - A job whose row or log is damaged is not touched, and neither is what was written down about it.
        """
        ...
