"""A client for synchronous programs: `perdure.Client`'s calls, blocking, on an event loop in a background thread."""

from __future__ import annotations

from perdure.sync.accounts import Accounts
from perdure.sync.approvals import Approvals
from perdure.sync.client import Client
from perdure.sync.database import Database
from perdure.sync.handle import Handle
from perdure.sync.jobs import Jobs
from perdure.sync.tasks import Tasks
from perdure.sync.workers import Workers

__all__ = ["Accounts", "Approvals", "Client", "Database", "Handle", "Jobs", "Tasks", "Workers"]
