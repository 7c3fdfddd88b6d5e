"""`client.agents`, blocking."""

from __future__ import annotations

from typing import Any

from perdure.model.agents import AgentInstance, AgentStatus, Intake, OnBusy, SessionState
from perdure.model.jobs import Page
from perdure.model.messages import DEFAULT_CHANNEL, Message, Sent
from perdure.model.signals import AgentSignal
from perdure.model.timing import Backoff, Duration
from perdure.runtime.background import BackgroundLoop
from perdure.runtime.client.agents import Agents as AsyncAgents
from perdure.sync.handle import Handle


class Agents:
    """See `perdure.Client.agents`."""

    def __init__(self, agents: AsyncAgents, background: BackgroundLoop) -> None:
        self._agents = agents
        self._background = background

    def create(
        self,
        agent_id: str,
        *,
        kind: str | None = None,
        name: str | None = None,
        default_session_id: str | None = None,
        meta: dict[str, Any] | None = None,
        queue: str = "default",
        intake: Intake = "each",
        batch: int = 1,
        on_busy: OnBusy = "enqueue",
        max_parallel_jobs: int = 1,
        max_retries: int | None = None,
        backoff: Backoff | None = None,
    ) -> AgentInstance:
        """See `Agents.create`."""
        return self._background.run(
            self._agents.create(
                agent_id,
                kind=kind,
                name=name,
                default_session_id=default_session_id,
                meta=meta,
                queue=queue,
                intake=intake,
                batch=batch,
                on_busy=on_busy,
                max_parallel_jobs=max_parallel_jobs,
                max_retries=max_retries,
                backoff=backoff,
            )
        )

    def get(self, agent_id: str) -> AgentInstance | None:
        """See `Agents.get`."""
        return self._background.run(self._agents.get(agent_id))

    def update(self, agent_id: str, **changes: Any) -> AgentInstance:
        """See `Agents.update`."""
        return self._background.run(self._agents.update(agent_id, **changes))

    def list(
        self, *, status: AgentStatus | str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[AgentInstance]:
        """See `Agents.list`."""
        return self._background.run(self._agents.list(status=status, limit=limit, cursor=cursor))

    def pause(self, agent_id: str) -> AgentInstance:
        """See `Agents.pause`."""
        return self._background.run(self._agents.pause(agent_id))

    def resume(self, agent_id: str) -> AgentInstance:
        """See `Agents.resume`."""
        return self._background.run(self._agents.resume(agent_id))

    def delete(self, agent_id: str, *, force: bool = False) -> None:
        """See `Agents.delete`."""
        self._background.run(self._agents.delete(agent_id, force=force))

    def send(
        self,
        to: str,
        payload: Any,
        *,
        from_: str | None = None,
        channel: str = DEFAULT_CHANNEL,
        session: str | None = None,
        delay: Duration = 0,
        expires_in: Duration | None = None,
        idempotency_key: str | None = None,
        causation_id: str | None = None,
        kind: str | None = None,
    ) -> Sent:
        """See `Agents.send`."""
        return self._background.run(
            self._agents.send(
                to,
                payload,
                from_=from_,
                channel=channel,
                session=session,
                delay=delay,
                expires_in=expires_in,
                idempotency_key=idempotency_key,
                causation_id=causation_id,
                kind=kind,
            )
        )

    def message(
        self,
        agent_id: str,
        payload: Any,
        *,
        from_: str | None = None,
        session: str | None = None,
        idempotency_key: str | None = None,
        causation_id: str | None = None,
        kind: str | None = None,
    ) -> Handle[Any]:
        """See `Agents.message`."""
        handle = self._background.run(
            self._agents.message(
                agent_id,
                payload,
                from_=from_,
                session=session,
                idempotency_key=idempotency_key,
                causation_id=causation_id,
                kind=kind,
            )
        )
        return Handle(handle, self._background)

    def inbox(
        self, agent_id: str, *, pending: bool = False, limit: int = 50, cursor: str | None = None
    ) -> Page[Message]:
        """See `Agents.inbox`."""
        return self._background.run(self._agents.inbox(agent_id, pending=pending, limit=limit, cursor=cursor))

    def outbox(
        self, agent_id: str, *, pending: bool = False, limit: int = 50, cursor: str | None = None
    ) -> Page[Message]:
        """See `Agents.outbox`."""
        return self._background.run(self._agents.outbox(agent_id, pending=pending, limit=limit, cursor=cursor))

    def signal(
        self,
        agent_id: str,
        key: str,
        payload: Any = None,
        *,
        id: str | None = None,
        expires_in: Duration | None = None,
    ) -> AgentSignal:
        """See `Agents.signal`."""
        return self._background.run(self._agents.signal(agent_id, key, payload, id=id, expires_in=expires_in))

    def signals(
        self, agent_id: str, *, pending: bool = False, limit: int = 50, cursor: str | None = None
    ) -> Page[AgentSignal]:
        """See `Agents.signals`."""
        return self._background.run(self._agents.signals(agent_id, pending=pending, limit=limit, cursor=cursor))

    def session(self, agent_id: str, session: str | None = None) -> SessionState | None:
        """See `Agents.session`."""
        return self._background.run(self._agents.session(agent_id, session))

    def sessions(self, agent_id: str, *, limit: int = 50, cursor: str | None = None) -> Page[SessionState]:
        """See `Agents.sessions`."""
        return self._background.run(self._agents.sessions(agent_id, limit=limit, cursor=cursor))

    def set_session(
        self, agent_id: str, state: Any, *, session: str | None = None, expected: int | None = None
    ) -> SessionState:
        """See `Agents.set_session`."""
        return self._background.run(self._agents.set_session(agent_id, state, session=session, expected=expected))
