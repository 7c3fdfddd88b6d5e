"""New jobs made of what is stored: of an agent's settings, of an older job."""

from __future__ import annotations

import json
from collections.abc import Mapping

from perdure.model.agents import AgentInstance, key_of_agent
from perdure.model.ids import uuid7
from perdure.model.jobs import Job, NewJob


def of_agent(new: NewJob, agents: Mapping[str, AgentInstance]) -> NewJob:
    """A job with what it takes from its agent, if that is among those that were created."""
    agent = agents.get(new.agent_id or "")
    if agent is None:
        return new
    return new._replace(
        session_id=new.session_id or agent.default_session_id,
        max_retries=agent.max_retries if new.max_retries is None else new.max_retries,
        concurrency_key=key_of_agent(agent.id),
        max_concurrent=agent.max_concurrent,
    )


def again(old: Job, payload: str, how: str, note: str) -> NewJob:
    """A new job like an old one, linked to it, without its idempotency key and deadline."""
    return NewJob(
        id=uuid7(),
        kind=old.kind,
        payload=payload,
        queue=old.queue,
        goal=old.goal,
        priority=old.priority,
        max_retries=old.max_retries,
        origin_id=old.id,
        origin_kind=how,
        note=note,
        concurrency_key=old.concurrency_key,
        max_concurrent=old.max_concurrent,
        agent_id=old.agent_id,
        session_id=old.session_id,
        tags=json.dumps(old.tags, ensure_ascii=False) if old.tags else None,
    )
