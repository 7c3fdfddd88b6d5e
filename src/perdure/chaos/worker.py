"""A worker of the harness, inside its process. Imported once, by the fork server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import structlog
from structlog.typing import EventDict

from perdure.app import App
from perdure.chaos.fork_server import Say
from perdure.chaos.handlers import make_app
from perdure.chaos.jobs import QUEUE, Failing, OpList
from perdure.chaos.worker_config import CHORES, DRAIN, GRACE, LINGER, LOST, TOO_MANY_HUNG, WorkerConfig
from perdure.event_loop import run
from perdure.model.errors import StoreUnreachable, TooManyHung
from perdure.runtime import codec

LEASE_LOST = ("lease lost", "the lease was lost before the end was written")
"""The log lines of `runtime.run` and `runtime.worker` that say so."""


def prepare() -> None:
    """Import and compile what every worker needs, so that each starts five times as fast."""
    for module in ("uvloop", "perdure.store.postgres.store", "perdure.store.sqlite.store"):
        with contextlib.suppress(ImportError):  # of uvloop, where there is none
            import_module(module)
    codec.decode('{"ops": [{"do": "step", "name": "warm"}]}', OpList, "operations")
    codec.decode('{"fatal": true}', Failing, "a failing job")


def run_worker(text: str, say: Say) -> None:
    """Work until SIGTERM, or until too many calls hang; sends `ready` when it begins."""
    config = WorkerConfig.read(text)

    def report_lost_leases(logger: Any, method: str, event: EventDict) -> EventDict:
        del logger, method
        if event["event"] in LEASE_LOST:
            say(LOST)
        return event

    structlog.configure(
        processors=[
            report_lost_leases,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.KeyValueRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        run(_work(config, say))
    except TooManyHung:
        sys.exit(TOO_MANY_HUNG)


async def _work(config: WorkerConfig, say: Say) -> None:
    app = make_app(config.url, config.tenant, Path(config.directory), config.generation)
    try:
        await _open(app)
        say("ready")
        await app.work(
            concurrency=config.concurrency,
            queues=[QUEUE],
            lease=config.lease,
            linger=LINGER,
            drain_timeout=DRAIN,
            grace=GRACE,
            chores=CHORES,
        )
    finally:
        await app.close()


async def _open(app: App) -> None:
    """Open the App; the database may be restarting, so try until it works."""
    while True:
        try:
            await app.open()
            return
        except StoreUnreachable:
            await asyncio.sleep(0.1)


prepare()
