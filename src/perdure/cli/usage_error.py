"""The error of a command line that makes no sense."""

from __future__ import annotations

from perdure.model import errors


class Usage(errors.PerdureError):
    """The command line makes no sense; nothing was done."""

    code = "usage"
