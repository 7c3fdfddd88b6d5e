"""`client.jobs`: everything a client does with jobs."""

from __future__ import annotations

from perdure.runtime.client.export import JobExport
from perdure.runtime.client.fork import JobFork


class Jobs(JobFork, JobExport):
    """Enqueue jobs, read them, wait for them, control them, send them signals, export them."""
