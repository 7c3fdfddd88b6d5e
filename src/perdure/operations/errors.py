"""The errors of operations alone."""

from __future__ import annotations

from perdure.model import errors


class NoWorker(errors.PerdureError):
    """No worker runs that could be asked."""

    code = "no-worker"
