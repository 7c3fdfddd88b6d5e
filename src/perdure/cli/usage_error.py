"""The error of a command line that cannot be understood."""

from __future__ import annotations

from perdure.model import errors


class Usage(errors.PerdureError):
    """The command line cannot be understood; nothing was done."""

    code = "usage"
