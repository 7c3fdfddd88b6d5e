"""The agents of one tenant, and the messages to and from them."""

from __future__ import annotations

import sqlite3
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
from perdure.store.sqlite.agents.deliver import deliver
from perdure.store.sqlite.agents.send import send
from perdure.store.sqlite.agents.states import save_state, set_state
from perdure.store.sqlite.engine.batch import NEWS, NOTHING, WORK
from perdure.store.sqlite.engine.codec import CODEC
from perdure.store.sqlite.engine.engine import Engine
from perdure.store.sqlite.engine.statements import SQL


class SqliteAgents:
    """See `protocol.AgentStore`."""

    def __init__(self, engine: Engine, tenant_id: str) -> None:
        self._engine = engine
        self._tenant_id = tenant_id

    async def create_agent(self, agent: NewAgent) -> bool:
        """See `protocol.AgentStore.create_agent`."""
        values = {**agent._asdict(), "tenant_id": self._tenant_id}

        def create(conn: sqlite3.Connection, now: int) -> bool:
            return conn.execute(SQL["create_agent"], {**values, "now": now}).fetchone() is not None

        return await self._engine.write(create, NOTHING)

    async def get_agent(self, agent_id: str) -> AgentInstance | None:
        """See `protocol.AgentStore.get_agent`."""
        row = await self._engine.row("get_agent", tenant_id=self._tenant_id, id=agent_id)
        return None if row is None else agent_of(row, CODEC)

    async def change_agent(self, agent_id: str, changes: Mapping[str, Any]) -> AgentInstance:
        """See `protocol.AgentStore.change_agent`."""
        place = {"tenant_id": self._tenant_id, "agent_id": agent_id}

        def change(conn: sqlite3.Connection, now: int) -> AgentInstance:
            row = conn.execute(SQL["lock_agent"], place).fetchone()
            if row is None:
                raise agent_not_found(agent_id)
            values = {**changed_agent(row, changes), "tenant_id": self._tenant_id, "now": now}
            conn.execute(SQL["change_agent"], values)
            conn.execute(SQL["add_delivery"], {**place, "now": now})
            return agent_of(conn.execute(SQL["get_agent"], values).fetchone(), CODEC)

        return await self._engine.write(change, WORK)

    async def delete_agent(self, agent_id: str, *, force: bool = False) -> None:
        """See `protocol.AgentStore.delete_agent`."""
        place = {"tenant_id": self._tenant_id, "agent_id": agent_id}

        def delete(conn: sqlite3.Connection, now: int) -> None:
            values = {**place, "now": now}
            if conn.execute(SQL["lock_agent"], place).fetchone() is None:
                raise agent_not_found(agent_id)
            used = dict(conn.execute(SQL["agent_in_use"], values).fetchone())
            if not force and any(used.values()):
                raise agent_in_use(agent_id, used)
            for statement in DELETING:
                conn.execute(SQL[statement], values)

        await self._engine.write(delete, NEWS)

    async def list_agents(
        self, *, status: AgentStatus | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[AgentInstance]:
        """See `protocol.AgentStore.list_agents`."""
        rows = await self._engine.rows(
            "list_agents", tenant_id=self._tenant_id, after=cursor, status=status, limit=limit + 1
        )
        items = tuple(agent_of(row, CODEC) for row in rows[:limit])
        return Page(items, items[-1].id if len(rows) > limit else None)

    async def agent_of(self, job_id: UUID) -> JobAgent | None:
        """See `protocol.AgentStore.agent_of`."""
        row = await self._engine.row("agent_of_job", tenant_id=self._tenant_id, job_id=str(job_id))
        return None if row is None else job_agent_of(row, CODEC)

    async def send(self, message: NewMessage, *, from_agent_id: str | None = None, start: bool = False) -> Sent:
        """See `protocol.AgentStore.send`."""
        return await self._engine.write(
            lambda conn, now: send(conn, now, self._tenant_id, message, from_agent_id, start=start), WORK | NEWS
        )

    async def deliver(self, agent_id: str) -> int:
        """See `protocol.AgentStore.deliver`."""
        return await self._engine.write(lambda conn, now: deliver(conn, now, self._tenant_id, agent_id), WORK | NEWS)

    async def bound_messages(self, job_id: UUID, wait_key: str) -> list[Message]:
        """See `protocol.AgentStore.bound_messages`."""
        rows = await self._engine.rows(
            "bound_messages", job_id=str(job_id), wait_key=wait_key, tenant_id=self._tenant_id
        )
        return [message_of(row, CODEC) for row in rows]

    async def read_state(self, agent_id: str, session_id: str) -> SessionState | None:
        """See `protocol.AgentStore.read_state`."""
        row = await self._engine.row("read_state", tenant_id=self._tenant_id, agent_id=agent_id, session_id=session_id)
        return None if row is None else state_of(row, CODEC)

    async def save_state(self, lease: Lease, new: NewState) -> int:
        """See `protocol.AgentStore.save_state`."""
        return await self._engine.write(lambda conn, now: save_state(conn, now, self._tenant_id, lease, new), NOTHING)

    async def set_state(self, new: NewState, *, any_version: bool = False) -> SessionState:
        """See `protocol.AgentStore.set_state`."""
        return await self._engine.write(
            lambda conn, now: set_state(conn, now, self._tenant_id, new, any_version=any_version), NOTHING
        )

    async def list_states(self, agent_id: str, *, limit: int = 50, cursor: str | None = None) -> Page[SessionState]:
        """See `protocol.AgentStore.list_states`."""
        place = {"tenant_id": self._tenant_id, "agent_id": agent_id}
        rows = await self._engine.rows("list_states", **place, after=session_after(cursor), limit=limit + 1)
        items = tuple(state_of(row, CODEC) for row in rows[:limit])
        return Page(items, session_cursor(items[-1]) if len(rows) > limit else None)

    async def due_agents(self, *, limit: int = 100) -> list[str]:
        """See `protocol.AgentStore.due_agents`."""
        rows = await self._engine.rows("due_agents", tenant_id=self._tenant_id, limit=limit)
        return [row["agent_id"] for row in rows]

    async def next_delivery(self) -> float | None:
        """See `protocol.AgentStore.next_delivery`."""
        row = await self._engine.row("next_delivery", tenant_id=self._tenant_id)
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
        before = parse_cursor(cursor)
        rows = await self._engine.rows(
            f"list_{box}",
            tenant_id=self._tenant_id,
            agent_id=agent_id,
            before=None if before is None else str(before),
            pending=pending,
            limit=limit + 1,
        )
        items = tuple(message_of(row, CODEC) for row in rows[:limit])
        return Page(items, str(items[-1].id) if len(rows) > limit else None)
