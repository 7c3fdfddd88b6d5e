"""A delivery to an agent, by the attempt that has something for it."""

from __future__ import annotations

import structlog

from perdure.model.errors import PerdureError
from perdure.runtime.run import Run

log = structlog.get_logger("perdure.run")


async def deliver_now(run: Run, agent_id: str) -> None:
    """At once, as nothing waits for it; where it fails, workers deliver it."""
    try:
        with run.busy():
            await run.store.agents.deliver(agent_id)
    except PerdureError as error:
        log.warning("a delivery to an agent happens later", agent=agent_id, error=str(error))
