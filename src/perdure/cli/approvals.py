"""`perdure approvals`: approvals, and rules about tools. Importing this module registers the commands on `app`."""

from __future__ import annotations

from perdure.cli import approval_rules
from perdure.cli.approval_decisions import app

__all__ = ["app", "approval_rules"]
