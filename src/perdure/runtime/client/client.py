"""The client: enqueue jobs, look at them, steer them, decide approvals, export and prune. Holds the store and the registry."""

from __future__ import annotations

from perdure.runtime.client.approvals import Approving
from perdure.runtime.client.fork import Forking
from perdure.runtime.client.fsck import Checking
from perdure.runtime.client.retention import Retaining


class Client(Forking, Approving, Retaining, Checking):
    """Everything a program does with jobs. `door` and `actor` go into the audit of what it changes."""
