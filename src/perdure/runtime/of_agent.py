"""What an attempt has if its job is an agent's: the agent, and what commits together with the end of the attempt."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from perdure.model.agents import KEY_PREFIX, AgentInstance
from perdure.model.effects import Effect
from perdure.model.jobs import ClaimedJob
from perdure.runtime.registry import Policy
from perdure.store.protocol import Store


@dataclass(slots=True)
class OfAgent:
    """agent: None where none of this id was created. has_signals: whether the job has got any. end_effects: run if the job
    completes."""

    agent_id: str
    session_id: str | None
    agent: AgentInstance | None
    has_signals: bool = False
    end_effects: list[Effect] = field(default_factory=list)


def policy_of(policy: Policy, of_agent: OfAgent | None) -> Policy:
    """How an attempt is tried again: as its handler says, unless its agent has a backoff of its own."""
    backoff = None if of_agent is None or of_agent.agent is None else of_agent.agent.backoff
    return policy if backoff is None else replace(policy, backoff=backoff)


def may_be_of_agent(claimed: ClaimedJob) -> bool:
    """Whether the job holds a slot of an agent."""
    return claimed.concurrency_key is not None and claimed.concurrency_key.startswith(KEY_PREFIX)


async def load_agent(store: Store, claimed: ClaimedJob) -> OfAgent | None:
    """Whose job it is. Raises StoreError."""
    found = await store.agents.agent_of(claimed.id)
    return None if found is None else OfAgent(*found)
