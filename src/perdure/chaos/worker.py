"""A worker of the harness, inside its process. Imported by the mother of all workers (`nursery`), once."""

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

from perdure.app import App, run
from perdure.chaos.fork_server import Say
from perdure.chaos.jobs import QUEUE, Doom, Errand, make_app
from perdure.chaos.worker_config import CHORES, DRAIN, LINGER, LOST, Orders
from perdure.model.errors import StoreUnreachable
from perdure.runtime import codec

LEASE_LOST = ("lease lost", "the lease was lost before the end was written")
"""The log lines of `runtime.run` and `runtime.worker` that say so."""


def prepare() -> None:
    """Import and compile what every worker will need: none of them has to, so each costs a fifth."""
    for module in ("uvloop", "perdure.store.postgres.store", "perdure.store.sqlite.store"):
        with contextlib.suppress(ImportError):  # of uvloop, where there is none
            import_module(module)
    codec.decode('{"ops": [{"do": "step", "name": "warm"}]}', Errand, "an errand")
    codec.decode('{"fatal": true}', Doom, "doom")


def obey(text: str, say: Say) -> None:
    """Work until told to stop; says `ready` when it begins."""
    orders = Orders.read(text)

    def listen(logger: Any, method: str, event: EventDict) -> EventDict:
        del logger, method
        if event["event"] in LEASE_LOST:
            say(LOST)
        return event

    structlog.configure(
        processors=[
            listen,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.KeyValueRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    run(_work(orders, say))


async def _work(orders: Orders, say: Say) -> None:
    app = make_app(orders.url, orders.tenant, Path(orders.place))
    try:
        await _open(app)
        say("ready")
        await app.work(
            concurrency=orders.concurrency,
            queues=[QUEUE],
            lease=orders.lease,
            linger=LINGER,
            drain_timeout=DRAIN,
            chores=CHORES,
        )
    finally:
        await app.close()


async def _open(app: App) -> None:
    """Patiently: the database may be on its way down or up."""
    while True:
        try:
            await app.open()
            return
        except StoreUnreachable:
            await asyncio.sleep(0.1)


prepare()
