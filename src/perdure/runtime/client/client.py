"""The client: enqueue jobs, look at them, steer them, decide approvals. Holds no state but the store and the registry."""

from __future__ import annotations

from perdure.runtime.client.approving import Approving
from perdure.runtime.client.enqueueing import Enqueueing


class Client(Enqueueing, Approving):
    """Everything a program does with jobs. `door` and `actor` go into the audit of what it changes."""
