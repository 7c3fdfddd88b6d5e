"""Log lines of the command line: readable or JSON, always on stderr. The library itself configures nothing."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

from perdure.cli.options import Flags
from perdure.cli.output import wants_color
from perdure.config import Settings


class _Stderr:
    """Writes to whatever stderr is at that moment: a live view may have put itself in front of it."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def configure_logs(settings: Settings, flags: Flags, *, works: bool = False) -> None:
    """Obey log_format and log_level; -v shows all, -q errors only. Where nothing `works`, only warnings are of interest
    unless log_level says otherwise."""
    level = settings["log_level"] if works or settings.origins["log_level"] != "default" else "warning"
    if flags.verbose:
        level = "debug"
    elif flags.quiet:
        level = "error"
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if settings["log_format"] == "json":
        last: list[Any] = [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer(ensure_ascii=False)]
    else:
        colors = wants_color(flags.color, sys.stderr)
        last = [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)]
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(_Stderr()),  # type: ignore[arg-type]  # it needs write and flush only
        cache_logger_on_first_use=False,
    )
