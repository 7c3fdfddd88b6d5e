"""Errors of workers and their leases."""

from __future__ import annotations

from perdure.model.errors.base import HandlerError, NotFound


class WorkerNotFound(NotFound):
    """No worker has this id."""

    code = "worker-not-found"


class LeaseLost(HandlerError):
    """This worker no longer holds the job: it was taken over, cancelled or changed by SQL. Nothing was written."""

    code = "lease-lost"
