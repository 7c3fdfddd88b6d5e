"""The runs of coding CLIs. Part of `protocol.Store`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from perdure.model.jobs import Lease
from perdure.model.task_records import OutputChunk, ToolRun


class ToolRunStore(Protocol):
    """The runs of coding CLIs, and what they write while they run. A run is written by the effect `add_tool_run`."""

    async def list_tool_runs(self, job_id: UUID) -> list[ToolRun]:
        """The runs of a job that have ended, by attempt."""
        ...

    async def append_output(self, lease: Lease, chunks: Sequence[OutputChunk]) -> None:
        """Store a part of the output of a running attempt. Raises `LeaseLost`, and then nothing was written."""
        ...

    async def read_output(self, job_id: UUID, *, attempt: int, after: int = 0, limit: int = 100) -> list[OutputChunk]:
        """The chunks of this attempt, or of a later one, after this seq of this attempt; in order."""
        ...
