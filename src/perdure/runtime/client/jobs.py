"""`client.jobs`: everything a client does with jobs."""

from __future__ import annotations

from perdure.runtime.client.batches import JobBatches
from perdure.runtime.client.bulk import JobBulk
from perdure.runtime.client.export import JobExport


class Jobs(JobBulk, JobExport, JobBatches):
    """Enqueue jobs, read them, wait for them, control them, send them signals, edit, delete and export them."""
