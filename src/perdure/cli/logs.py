"""Which log lines a command shows: by its settings, by -v and -q, and fewer where it runs no worker."""

from __future__ import annotations

import sys

from perdure import logs
from perdure.cli.flags import Flags
from perdure.cli.output import wants_color
from perdure.config import Settings


def configure_logs(settings: Settings, flags: Flags, *, works: bool = False) -> None:
    """Apply log_format and log_level; -v shows all, -q errors only. Without a worker only warnings are shown, unless log_level is
    set; works: a worker runs, so the lines of its handlers are shown as well."""
    level = settings["log_level"] if works or settings.origins["log_level"] != "default" else "warning"
    if flags.verbose:
        level = "debug"
    elif flags.quiet:
        level = "error"
    colors = wants_color(flags.color, sys.stderr)
    logs.configure_logs(level=level, format=settings["log_format"], colors=colors, stdlib=works)
