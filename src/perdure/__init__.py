"""Durable jobs for AI agents and coding CLIs, on your PostgreSQL or an embedded SQLite file.

from perdure import App, JobContext

app = App()

@app.job
async def greet(ctx: JobContext, name: str) -> str:
    return await ctx.step("say", "hello {}".format, name)

# await app.enqueue(greet, "world"); then run a worker: perdure worker start --app module:app
"""

from perdure.app import App
from perdure.model.approvals import Approval, ApprovalStatus
from perdure.model.errors import (
    Denied,
    Fail,
    JobCancelled,
    JobFailed,
    PerdureError,
    Retry,
    Snooze,
    Suspended,
    WaitTimeout,
)
from perdure.model.events import Event
from perdure.model.jobs import Job
from perdure.model.states import TRANSITIONS, Status
from perdure.model.timing import Backoff
from perdure.runtime.asking import ApprovalRequest, Decision
from perdure.runtime.blocking import BlockingContext
from perdure.runtime.client import Client, Request
from perdure.runtime.context import JobContext, idempotency_key
from perdure.runtime.handle import Handle
from perdure.runtime.registry import Handler
from perdure.runtime.worker import Worker

__version__ = "0.1.0"

__all__ = [
    "TRANSITIONS",
    "App",
    "Approval",
    "ApprovalRequest",
    "ApprovalStatus",
    "Backoff",
    "BlockingContext",
    "Client",
    "Decision",
    "Denied",
    "Event",
    "Fail",
    "Handle",
    "Handler",
    "Job",
    "JobCancelled",
    "JobContext",
    "JobFailed",
    "PerdureError",
    "Request",
    "Retry",
    "Snooze",
    "Status",
    "Suspended",
    "WaitTimeout",
    "Worker",
    "__version__",
    "idempotency_key",
]
