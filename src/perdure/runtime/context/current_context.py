"""The context of the attempt that the running code belongs to, for libraries that are called without it."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.runtime.context.context import JobContext

running_context: contextvars.ContextVar[JobContext] = contextvars.ContextVar("perdure_context")


def current_context() -> JobContext:
    """The context that the handler was called with, in which this code runs: for code that a library calls.

    Raises LookupError outside of a handler.
    """
    try:
        return running_context.get()
    except LookupError:
        raise LookupError("current_context() is known only inside a handler") from None
