"""Which log lines a command shows: what its settings say, what -v and -q say, and what suits a command that does no work."""

from __future__ import annotations

import sys

from perdure import logs
from perdure.cli.flags import Flags
from perdure.cli.output import wants_color
from perdure.config import Settings


def configure_logs(settings: Settings, flags: Flags, *, works: bool = False) -> None:
    """Obey log_format and log_level; -v shows all, -q errors only. Where nothing `works`, only warnings are of interest
    unless log_level says otherwise; where something does, the lines of its handlers are of interest as well."""
    level = settings["log_level"] if works or settings.origins["log_level"] != "default" else "warning"
    if flags.verbose:
        level = "debug"
    elif flags.quiet:
        level = "error"
    colors = wants_color(flags.color, sys.stderr)
    logs.configure_logs(level=level, format=settings["log_format"], colors=colors, stdlib=works)
