"""Log lines: text or JSON, always on stderr, each with the ids of the attempt that wrote it.

The library itself configures nothing. `configure_logs` is for the command line and for `App.run_worker`. A program with its own
configuration adds `add_attempt` or `AttemptFilter` to it.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from perdure.model.current_attempt import attempt_ids
from perdure.model.safe_text import clean_text, safe_json

__all__ = ["AttemptFilter", "add_attempt"]


def add_attempt(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:  # noqa: ARG001  a processor
    """A structlog processor: adds job_id, kind, attempt and worker of the running attempt, unless the line names them."""
    for name, value in attempt_ids().items():
        event.setdefault(name, value)
    return event


class AttemptFilter(logging.Filter):
    """A filter for a logging handler: it adds job_id, kind, attempt and worker of the running attempt to every record (None
    outside of one), so that a format can use them: `%(job_id)s`. It drops no record."""

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filter.filter`."""
        ids = attempt_ids()
        for name in ("job_id", "kind", "attempt", "worker"):
            if not hasattr(record, name):
                setattr(record, name, ids.get(name))
        return True


def _clean(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:  # noqa: ARG001  a processor
    """Nothing that a job logs controls the terminal or looks like another line: only tracebacks have lines of their own, and a
    message whose other lines are indented."""
    return {clean_text(str(name)): _clean_value(name, value) for name, value in event.items()}


def _clean_value(name: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = clean_text(value if isinstance(value, str) else repr(value))
    if name in ("exception", "stack"):
        return text
    return text.replace("\n", "\n    " if name == "event" else "\\n")


def _as_json(value: Any, **options: Any) -> str:
    return safe_json(json.dumps(value, ensure_ascii=False, **options))


class _Stderr:
    """Writes to the current `sys.stderr`: a live view may have replaced it."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


class _RootHandler(logging.StreamHandler[Any]):
    """The handler that `configure_logs` adds to the root logger; its class tells it from others."""


def configure_logs(*, level: str, format: str, colors: bool = False, stdlib: bool = False) -> None:
    """Send perdure's log lines, and all others of structlog, to stderr.

    level: debug, info, warning or error. format: text or json. stdlib: also the lines of the standard library's logging and its
    warnings, in the same format, unless the program has given its root logger a handler.
    Tracebacks show code and never the values of variables.
    """
    last: list[Any]
    if format == "json":
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(_as_json)]
    else:
        last = [
            structlog.processors.format_exc_info,
            _clean,
            structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback),
        ]
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
    number = getattr(logging, level.upper())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            add_attempt,
            structlog.processors.add_log_level,
            stamp,
            *last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(_Stderr()),  # type: ignore[arg-type]  # it needs write and flush only
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    for handler in [h for h in root.handlers if isinstance(h, _RootHandler)]:
        root.removeHandler(handler)
        logging.captureWarnings(False)
    if stdlib and not root.handlers:
        root.addHandler(_root_handler(stamp, last))
        root.setLevel(number)
        logging.captureWarnings(True)


def _root_handler(stamp: Any, last: list[Any]) -> logging.Handler:
    handler = _RootHandler(_Stderr())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                structlog.contextvars.merge_contextvars,
                structlog.stdlib.ExtraAdder(),
                add_attempt,
                structlog.stdlib.add_logger_name,
                structlog.stdlib.add_log_level,
                stamp,
            ],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    return handler
