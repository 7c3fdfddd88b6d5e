"""`perdure jobs`: start, look at and steer jobs. The commands register themselves on `app`, in this order."""

from __future__ import annotations

from perdure.cli import job_control as jobsteer
from perdure.cli import job_export as jobexport
from perdure.cli import job_queries as joblook
from perdure.cli import job_start as jobadd
from perdure.cli.job_options import app

__all__ = ["app", "jobadd", "jobexport", "joblook", "jobsteer"]
