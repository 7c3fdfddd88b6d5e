"""Exit codes: the one table from errors to exit codes, and how an error is printed."""

from __future__ import annotations

import enum
import json
import os
import sys
import textwrap
import traceback
from datetime import UTC, datetime

from perdure.cli.usage_error import Usage
from perdure.model import errors
from perdure.model.safe_text import clean_text, safe_json


class Exit(enum.IntEnum):
    """The exit codes. They are documented, tested and stable."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    NOT_PERMITTED = 4
    CONFLICT = 5
    JOB_FAILED = 6
    JOB_CANCELLED = 7
    WAIT_TIMEOUT = 8
    APPROVAL_NEEDED = 9
    UNREACHABLE = 10
    HUNG = 11
    INTERRUPTED = 130
    PIPE_CLOSED = 141
    TERMINATED = 143


class AppNotFound(Usage):
    """There is no App where --app points to."""

    code = "app-not-found"


class NotConfirmed(Usage):
    """The command needs a confirmation, and no person can be asked."""

    code = "not-confirmed"


class Declined(errors.PerdureError):
    """The answer was no; nothing was done."""

    code = "declined"


class ApprovalNeeded(errors.PerdureError):
    """The awaited job waits for an approval."""

    code = "approval-needed"


class DemoFailed(errors.PerdureError):
    """The demo cannot go on; the message says why."""

    code = "demo-failed"


class Bug(errors.PerdureError):
    """An error in perdure itself."""

    code = "bug"


class Interrupted(BaseException):
    """A signal ended the command; `exit_code` is 128 plus its number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


EXIT_CODES: dict[type[errors.PerdureError], Exit] = {
    errors.PerdureError: Exit.FAILURE,
    Usage: Exit.USAGE,
    errors.ConfigError: Exit.USAGE,
    errors.InvalidInput: Exit.USAGE,
    errors.UnknownHandler: Exit.USAGE,
    errors.NotFound: Exit.NOT_FOUND,
    errors.AmbiguousId: Exit.USAGE,
    errors.NotPermitted: Exit.NOT_PERMITTED,
    errors.Conflict: Exit.CONFLICT,
    errors.JobFailed: Exit.JOB_FAILED,
    errors.JobCancelled: Exit.JOB_CANCELLED,
    errors.Denied: Exit.JOB_CANCELLED,
    errors.WaitTimeout: Exit.WAIT_TIMEOUT,
    ApprovalNeeded: Exit.APPROVAL_NEEDED,
    errors.StoreUnreachable: Exit.UNREACHABLE,
    errors.TooManyHung: Exit.HUNG,
}
"""An error ends the command with the code of its nearest class here."""


def exit_code(error: BaseException) -> int:
    """The exit code an error ends the command with."""
    if isinstance(error, errors.JobFailed) and error.kind == "denied":
        return Exit.JOB_CANCELLED
    return exit_code_of(type(error))


def exit_code_of(cls: type[BaseException]) -> int:
    """The exit code of errors of this class."""
    return next((EXIT_CODES[c] for c in cls.__mro__ if c in EXIT_CODES), Exit.FAILURE)


def pipe_closed() -> int:
    """The reader of our output is gone: print nothing more, also not at interpreter exit, and return the exit code of SIGPIPE."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return Exit.PIPE_CLOSED


def report(
    error: Exception, *, as_json: bool = False, as_log: bool = False, verbose: int = 0, color: bool = False
) -> int:
    """Print an error to stderr and return its exit code. An error that is not a PerdureError is reported as a bug. as_log: as a
    line of a log in JSON."""
    trace = None
    if not isinstance(error, errors.PerdureError):
        trace = _traceback(error) if verbose else None
        error = _bug(error, verbose)
    elif verbose > 1:
        trace = _traceback(error)
    code = exit_code(error)
    if as_log:
        print(_as_log_line(error, code, trace), file=sys.stderr)
        return code
    if trace is not None:
        print(trace, end="", file=sys.stderr)
    text = _as_json(error, code) if as_json else format_error(error.message, error.hint, error.code, color=color)
    print(text, file=sys.stderr)
    return code


def log_line(event: str, level: str, **facts: object) -> str:
    """A line of a log in JSON."""
    line = {"event": event, **facts, "level": level, "timestamp": datetime.now(UTC).isoformat()}
    return safe_json(json.dumps(line, ensure_ascii=False))


def _as_log_line(error: errors.PerdureError, code: int, trace: str | None) -> str:
    more = {} if trace is None else {"exception": trace}
    return log_line(
        error.message,
        "error",
        code=error.code,
        hint=error.hint,
        help=f"perdure help {error.code}",
        exit_code=int(code),
        **more,
    )


def format_error(message: str, hint: str | None, code: str, *, color: bool = False, word: str = "error") -> str:
    """The message, the hint, and the command that shows the error's page, as text for people."""
    mark = f"\x1b[1;31m{word}:\x1b[0m" if color else f"{word}:"
    page = f"\x1b[2m[perdure help {code}]\x1b[0m" if color else f"[perdure help {code}]"
    text = f"{mark} {clean_text(message)}"
    if hint:
        text += "\n" + textwrap.indent(clean_text(hint), "  ")
    return f"{text}  {page}"


def _as_json(error: errors.PerdureError, code: int) -> str:
    fields = {
        "title": " ".join((type(error).__doc__ or "").split()),
        "detail": error.message,
        "code": error.code,
        "hint": error.hint,
        "help": f"perdure help {error.code}",
        "retryable": isinstance(error, errors.StoreUnreachable),
        "exit_code": int(code),
    }
    return safe_json(json.dumps(fields, ensure_ascii=False))


def _traceback(error: Exception) -> str:
    return clean_text("".join(traceback.format_exception(error)))


def _bug(error: Exception, verbose: int) -> Bug:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Bug(
        f"this is a bug in perdure: {text}",
        hint="please report it with the traceback above" if verbose else "run it again with -v for the traceback",
    )
