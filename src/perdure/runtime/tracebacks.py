"""Tracebacks as a job keeps them: where in the user's code it failed, bounded, and never with the values of variables."""

from __future__ import annotations

import asyncio
import os
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from perdure.model.errors import PerdureError

MAX_BYTES = 8192
"""Of a traceback that is kept, in UTF-8."""
MOST_FRAMES = 12
"""Of one exception, where not all fit."""
MOST_MESSAGE = 500
"""Characters of one exception, where not all fit."""

_PERDURE, _STDLIB = Path(__file__).parents[1], Path(asyncio.__file__).parents[1]
INTERNAL_FILES = (
    *(f"{_PERDURE / part}{os.sep}" for part in ("runtime", "testing", "tools")),
    f"{_STDLIB / 'concurrent' / 'futures'}{os.sep}",  # plain handlers wait there for their steps
    str(_STDLIB / "unittest" / "mock.py"),
)
"""Files that are not shown as the place of an error: those between a handler and what it calls, or a mock of that."""
_LIBRARIES = (f"{_STDLIB}{os.sep}", *{f"{sysconfig.get_path(name)}{os.sep}" for name in ("purelib", "platlib")})


def traceback_of(error: BaseException) -> str:
    """As text, for the log: loggers that get the exception itself may show local variables, and secrets in them."""
    return "".join(traceback.format_exception(error))


class Tracebacks(NamedTuple):
    """Of one error. kept: for the event; None where no code but perdure's was reached. logged: for the log; None for
    perdure's own errors, which handlers raise on purpose."""

    kept: str | None
    logged: str | None


def tracebacks_of(error: BaseException) -> Tracebacks:
    """What is kept of an error that a handler raised."""
    return Tracebacks(kept_traceback(error), None if isinstance(error, PerdureError) else traceback_of(error))


def kept_traceback(error: BaseException) -> str | None:
    """As text, for the event of the attempt's end: without the frames of perdure, at most MAX_BYTES.

    Where not all fits, the frames of the user's code have precedence over those of libraries, and the last exception over those
    that it followed from. None where no code but perdure's was reached.
    """
    whole = traceback.TracebackException.from_exception(error, compact=True)
    users = [_without(part, INTERNAL_FILES) for part in _parts(whole)]
    if not any(users):
        return None
    text = "".join(whole.format()).rstrip("\n")
    if len(text.encode(errors="replace")) > MAX_BYTES:
        text = _shortened(whole)
    return storable(text).encode()[:MAX_BYTES].decode(errors="ignore")


def storable(text: str) -> str:
    """Text that every database can hold: no NUL, no lone surrogates."""
    return text.replace("\x00", "\\0").encode(errors="replace").decode()


def _parts(whole: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    """The exception, then those in its group, then those that it followed from."""
    seen: set[int] = set()
    left = [whole]
    while left:
        part = left.pop(0)
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        before = part.__cause__ or (None if part.__suppress_context__ else part.__context__)
        left += [*(getattr(part, "exceptions", None) or ()), *([before] if before else [])]


def _without(part: traceback.TracebackException, files: tuple[str, ...]) -> bool:
    """Leave out the frames of these files; whether any are left."""
    part.stack = traceback.StackSummary.from_list([f for f in part.stack if not f.filename.startswith(files)])
    return bool(part.stack)


def _shortened(whole: traceback.TracebackException) -> str:
    said = []
    for part in _parts(whole):
        _without(part, _LIBRARIES)
        message = "".join(part.format_exception_only())[:MOST_MESSAGE].rstrip()
        frames = traceback.StackSummary.from_list(list(part.stack)[-MOST_FRAMES:])
        said.append("".join(["Traceback, shortened (most recent call last):\n", *frames.format(), message]))
    return "\n\nwhich followed from:\n\n".join(said)
