"""`perdure jobs`: start, read and control jobs. Importing this module registers the commands on `app`."""

from __future__ import annotations

from perdure.cli import (
    job_batch,
    job_control,
    job_edit,
    job_export,
    job_memory,
    job_queries,
    job_replay,
    job_start,
    job_tree,
)
from perdure.cli.job_options import app

__all__ = [
    "app",
    "job_batch",
    "job_control",
    "job_edit",
    "job_export",
    "job_memory",
    "job_queries",
    "job_replay",
    "job_start",
    "job_tree",
]

ORDER = (
    "start", "ls", "get", "watch", "events", "steps", "messages", "actions", "variables", "tree", "batch", "count", "explain",
    "diff", "replay", "cancel", "retry-now", "edit", "rerun", "fork", "signal", "export", "delete",
)  # fmt: skip
"""The commands as the help lists them: from the start of a job to what is done with a finished one."""

app.registered_commands.sort(key=lambda command: ORDER.index(command.name or ""))
