"""Log lines of a program that is ours: readable or JSON, always on stderr. The library itself configures nothing."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog


class _Stderr:
    """Writes to whatever stderr is at that moment: a live view may have put itself in front of it."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def configure_logs(*, level: str, format: str, colors: bool = False) -> None:
    """Send perdure's log lines to stderr. level: debug, info, warning or error. format: text or json.

    Tracebacks show code and never the values of variables.
    """
    if format == "json":
        last: list[Any] = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]
    else:
        last = [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(_Stderr()),  # type: ignore[arg-type]  # it needs write and flush only
        cache_logger_on_first_use=False,
    )
