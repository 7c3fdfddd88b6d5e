"""What goes wrong with the harness itself."""

from __future__ import annotations

from perdure.model.errors import PerdureError


class ChaosFailed(PerdureError):
    """The chaos harness cannot go on; the message says why."""

    code = "chaos-failed"
