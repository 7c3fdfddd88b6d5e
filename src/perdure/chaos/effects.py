"""What jobs do outside of the database."""

from __future__ import annotations

import os
from pathlib import Path

from perdure.runtime.context.approvals import ApprovalRequest
from perdure.runtime.context.blocking import BlockingContext
from perdure.runtime.context.context import JobContext


class EffectLog:
    """A file outside of the database to which jobs append each effect; no kill can undo that."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file = os.open(directory / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def append(self, ctx: JobContext | BlockingContext, name: str) -> None:
        """Append an effect."""
        os.write(self._file, f"{ctx.job_id} {ctx.attempt} {name}\n".encode())

    def token(self, request: ApprovalRequest) -> None:
        """Write the token of an approval's link to a file; the last one counts."""
        (self._directory / f"token-{request.id}").write_text(request.token)

    def happens(self, ctx: JobContext, name: str, times: int) -> bool:
        """True for the first `times` calls of a job with this name, whatever is killed."""
        for number in range(times):
            try:
                os.close(os.open(self._directory / f"happened-{ctx.job_id}-{name}-{number}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            return True
        return False
