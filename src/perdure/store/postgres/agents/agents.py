"""The agents of one tenant, and the messages to and from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal
from uuid import UUID

from perdure.model.agents import AgentInstance, AgentStatus, JobAgent, NewAgent, NewState, SessionState
from perdure.model.jobs import Lease, Page
from perdure.model.messages import Message, NewMessage, Sent
from perdure.store.agent_rows import (
    DELETING,
    agent_of,
    changed_agent,
    job_agent_of,
    message_of,
    session_after,
    session_cursor,
    state_of,
)
from perdure.store.errors import agent_in_use, agent_not_found, parse_cursor
from perdure.store.postgres.agents.deliver import deliver
from perdure.store.postgres.agents.send import send
from perdure.store.postgres.agents.states import save_state, set_state
from perdure.store.postgres.engine.codec import CODEC
from perdure.store.postgres.engine.database import Transaction
from perdure.store.postgres.engine.engine import Engine


class PostgresAgents:
    """See `protocol.AgentStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._database = engine.database
        self._notifier = engine.notifier
        self._tenant_id = tenant_id

    async def create_agent(self, agent: NewAgent) -> bool:
        """See `protocol.AgentStore.create_agent`."""
        return await self._database.row("create_agent", tenant_id=self._tenant_id, **agent._asdict()) is not None

    async def get_agent(self, agent_id: str) -> AgentInstance | None:
        """See `protocol.AgentStore.get_agent`."""
        row = await self._database.row("get_agent", tenant_id=self._tenant_id, id=agent_id)
        return None if row is None else agent_of(row, CODEC)

    async def change_agent(self, agent_id: str, changes: Mapping[str, Any]) -> AgentInstance:
        """See `protocol.AgentStore.change_agent`."""

        async def work(tx: Transaction) -> AgentInstance:
            row = await tx.row("lock_agent", tenant_id=self._tenant_id, agent_id=agent_id)
            if row is None:
                raise agent_not_found(agent_id)
            await tx.rows("change_agent", tenant_id=self._tenant_id, **changed_agent(row, changes))
            await tx.rows("add_delivery", tenant_id=self._tenant_id, agent_id=agent_id)
            row = await tx.row("get_agent", tenant_id=self._tenant_id, id=agent_id)
            assert row is not None
            return agent_of(row, CODEC)

        changed = await self._database.transact(work)
        self._notifier.notify(self._tenant_id, "work")
        return changed

    async def delete_agent(self, agent_id: str, *, force: bool = False) -> None:
        """See `protocol.AgentStore.delete_agent`."""
        place = {"tenant_id": self._tenant_id, "agent_id": agent_id}

        async def work(tx: Transaction) -> None:
            if await tx.row("lock_agent", **place) is None:
                raise agent_not_found(agent_id)
            used = await tx.row("agent_in_use", **place)
            if not force and used is not None and any(used.values()):
                raise agent_in_use(agent_id, used)
            for statement in DELETING:
                await tx.rows(statement, **place)

        await self._database.transact(work)
        self._notifier.notify(self._tenant_id, "news")

    async def list_agents(
        self, *, status: AgentStatus | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[AgentInstance]:
        """See `protocol.AgentStore.list_agents`."""
        rows = await self._database.rows(
            "list_agents",
            tenant_id=self._tenant_id,
            after=cursor,
            status=None if status is None else status.value,
            limit=limit + 1,
        )
        items = tuple(agent_of(row, CODEC) for row in rows[:limit])
        return Page(items, items[-1].id if len(rows) > limit else None)

    async def agent_of(self, job_id: UUID) -> JobAgent | None:
        """See `protocol.AgentStore.agent_of`."""
        row = await self._database.row("agent_of_job", tenant_id=self._tenant_id, job_id=job_id)
        return None if row is None else job_agent_of(row, CODEC)

    async def send(self, message: NewMessage, *, from_agent_id: str | None = None, start: bool = False) -> Sent:
        """See `protocol.AgentStore.send`."""
        sent = await self._database.transact(lambda tx: send(tx, self._tenant_id, message, from_agent_id, start=start))
        self._notifier.notify(self._tenant_id, "work", "news")
        return sent

    async def deliver(self, agent_id: str) -> int:
        """See `protocol.AgentStore.deliver`."""
        bound = await self._database.transact(lambda tx: deliver(tx, self._tenant_id, agent_id))
        if bound:
            self._notifier.notify(self._tenant_id, "work", "news")
        return bound

    async def bound_messages(self, job_id: UUID, wait_key: str) -> list[Message]:
        """See `protocol.AgentStore.bound_messages`."""
        rows = await self._database.rows("bound_messages", job_id=job_id, wait_key=wait_key, tenant_id=self._tenant_id)
        return [message_of(row, CODEC) for row in rows]

    async def read_state(self, agent_id: str, session_id: str) -> SessionState | None:
        """See `protocol.AgentStore.read_state`."""
        place = {"tenant_id": self._tenant_id, "agent_id": agent_id, "session_id": session_id}
        row = await self._database.row("read_state", **place)
        return None if row is None else state_of(row, CODEC)

    async def save_state(self, lease: Lease, new: NewState) -> int:
        """See `protocol.AgentStore.save_state`."""
        return await self._database.transact(lambda tx: save_state(tx, self._tenant_id, lease, new))

    async def set_state(self, new: NewState, *, any_version: bool = False) -> SessionState:
        """See `protocol.AgentStore.set_state`."""
        return await self._database.transact(lambda tx: set_state(tx, self._tenant_id, new, any_version=any_version))

    async def list_states(self, agent_id: str, *, limit: int = 50, cursor: str | None = None) -> Page[SessionState]:
        """See `protocol.AgentStore.list_states`."""
        place = {"tenant_id": self._tenant_id, "agent_id": agent_id}
        rows = await self._database.rows("list_states", **place, after=session_after(cursor), limit=limit + 1)
        items = tuple(state_of(row, CODEC) for row in rows[:limit])
        return Page(items, session_cursor(items[-1]) if len(rows) > limit else None)

    async def due_agents(self, *, limit: int = 100) -> list[str]:
        """See `protocol.AgentStore.due_agents`."""
        rows = await self._database.rows("due_agents", tenant_id=self._tenant_id, limit=limit)
        return [row["agent_id"] for row in rows]

    async def next_delivery(self) -> float | None:
        """See `protocol.AgentStore.next_delivery`."""
        row = await self._database.row("next_delivery", tenant_id=self._tenant_id)
        return None if row is None or row["seconds"] is None else max(0.0, row["seconds"])

    async def list_messages(
        self,
        agent_id: str,
        box: Literal["inbox", "outbox"],
        *,
        pending: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Message]:
        """See `protocol.AgentStore.list_messages`."""
        rows = await self._database.rows(
            f"list_{box}",
            tenant_id=self._tenant_id,
            agent_id=agent_id,
            before=parse_cursor(cursor),
            pending=pending,
            limit=limit + 1,
        )
        items = tuple(message_of(row, CODEC) for row in rows[:limit])
        return Page(items, str(items[-1].id) if len(rows) > limit else None)
