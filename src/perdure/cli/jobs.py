"""`perdure jobs`: start, look at and steer jobs. The commands register themselves on `app`, in this order."""

from __future__ import annotations

from perdure.cli import jobadd, jobexport, joblook, jobsteer
from perdure.cli.joboptions import app

__all__ = ["app", "jobadd", "jobexport", "joblook", "jobsteer"]
