"""Which log lines a command shows: by its settings, by -v and -q, and fewer where it runs no worker."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from perdure import logs
from perdure.cli.errors import log_line
from perdure.cli.flags import Flags
from perdure.cli.output import wants_color
from perdure.config import Settings

log = structlog.get_logger("perdure.worker")


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
    if works:
        threading.excepthook = _log_thread


def _log_thread(ended: threading.ExceptHookArgs) -> None:
    """In place of Python's own, which writes lines that are no log lines."""
    if ended.exc_type is SystemExit:
        return
    info = (ended.exc_type, ended.exc_value, ended.exc_traceback)
    log.error("a thread ended with an exception", thread=ended.thread and ended.thread.name, exc_info=info)


@contextmanager
def json_warnings() -> Iterator[None]:
    """Python's warnings are log lines in JSON, until the log is configured: an App may warn when it is imported."""

    def show(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object) -> None:
        facts = {"category": category.__name__, "file": filename, "line": lineno}
        print(log_line(str(message), "warning", **facts), file=sys.stderr, flush=True)

    former = warnings.showwarning
    warnings.showwarning = show  # type: ignore[assignment]  # it takes what it is called with
    try:
        yield
    finally:
        if warnings.showwarning is show:  # the App may have set another one
            warnings.showwarning = former
