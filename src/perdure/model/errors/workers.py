"""Errors of workers and their leases."""

from __future__ import annotations

from perdure.model.errors.base import HandlerError, NotFound


class WorkerNotFound(NotFound):
    """No worker has this id."""

    code = "worker-not-found"


class TooManyHung(HandlerError):
    """Too many calls hang in this worker's process: it has stopped and handed back its jobs. Start another process."""

    code = "too-many-hung"


class LeaseLost(HandlerError):
    """This worker no longer holds the job: it was taken over, cancelled or changed by SQL. Nothing was written."""

    code = "lease-lost"
