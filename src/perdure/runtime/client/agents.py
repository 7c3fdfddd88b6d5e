"""`client.agents`: agents, their mailboxes, and messages to them."""

from __future__ import annotations

import builtins
from contextlib import suppress
from typing import Any, Literal

from perdure.model.agents import AgentInstance, AgentStatus, Intake, OnBusy
from perdure.model.errors import AgentNotFound, IdempotencyConflict, IllegalTransition, InvalidInput, JobNotFound
from perdure.model.jobs import Page
from perdure.model.messages import DEFAULT_CHANNEL, Message, NewMessage, Sent
from perdure.model.states import Status
from perdure.model.timing import Backoff, Duration
from perdure.runtime.client.agent_sessions import AgentSessions
from perdure.runtime.client.jobs import Jobs
from perdure.runtime.handle import Handle
from perdure.runtime.message_checks import check_agent, check_agent_id, check_changes, check_message
from perdure.runtime.validation import check_limit
from perdure.store.errors import agent_exists, agent_not_found

_NOT_ENDED = tuple(status for status in Status if not status.terminal)


class Agents(AgentSessions):
    """Agents: long-lived identities with many jobs over time, and a mailbox. Jobs need none: `get` then gives None."""

    async def create(
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
        """Create an agent. kind: the handler of its jobs; None: its own id. The rest is as in `AgentInstance`.

        Raises AgentExists, InvalidInput, NotJson, TooLarge.
        """
        new = check_agent(
            agent_id,
            kind=kind,
            name=name,
            default_session_id=default_session_id,
            meta=meta or {},
            queue=queue,
            intake=intake,
            batch=batch,
            on_busy=on_busy,
            max_parallel_jobs=max_parallel_jobs,
            max_retries=max_retries,
            backoff=backoff,
        )
        agents = (await self._store()).agents
        if not await agents.create_agent(new):
            raise agent_exists(new.id)
        created = await agents.get_agent(new.id)
        assert created is not None
        return created

    async def get(self, agent_id: str) -> AgentInstance | None:
        """An agent with its status; None if there is none."""
        return await (await self._store()).agents.get_agent(agent_id)

    async def update(self, agent_id: str, **changes: Any) -> AgentInstance:
        """Change what `create` takes, by name; jobs that are there keep what they were started with.

        Raises AgentNotFound, InvalidInput, NotJson, TooLarge.
        """
        if "kind" in changes and changes["kind"] is None:
            changes["kind"] = agent_id
        return await (await self._store()).agents.change_agent(agent_id, check_changes(changes))

    async def list(
        self, *, status: AgentStatus | str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[AgentInstance]:
        """Agents by id, with their status; status: only those in it. Raises InvalidInput."""
        wanted = None if status is None else _status(status)
        return await (await self._store()).agents.list_agents(status=wanted, limit=check_limit(limit), cursor=cursor)

    async def pause(self, agent_id: str) -> AgentInstance:
        """Accept and deliver no messages to it until it is resumed; its jobs go on. Raises AgentNotFound."""
        return await (await self._store()).agents.change_agent(agent_id, {"paused": True})

    async def resume(self, agent_id: str) -> AgentInstance:
        """Accept and deliver its messages again. Raises AgentNotFound."""
        return await (await self._store()).agents.change_agent(agent_id, {"paused": False})

    async def delete(self, agent_id: str, *, force: bool = False) -> None:
        """Delete an agent, and the states of its sessions, permanently. Its jobs and their logs stay; so do its messages and
        signals, until they are pruned: those that are pending count as expired.

        force: pause it and cancel its jobs first, and let pending messages and signals expire; a job that runs ends as soon as
        its worker sees that, and until then may save the state of its session again. If it stops in between, the agent is
        paused, and another call goes on.
        Raises AgentNotFound, and AgentInUse while it has jobs that have not ended, or pending messages or signals.
        """
        agents = (await self._store()).agents
        if force:
            await agents.change_agent(agent_id, {"paused": True})
            await self._cancel_jobs(agent_id)
        await agents.delete_agent(agent_id, force=force)

    async def _cancel_jobs(self, agent_id: str) -> None:
        jobs = Jobs(self._scope)
        cursor: str | None = None
        while True:
            page = await jobs.list(agent=agent_id, status=_NOT_ENDED, limit=500, cursor=cursor)
            for job in page.items:
                with suppress(IllegalTransition, JobNotFound):  # it has ended meanwhile
                    await jobs.cancel(job.id, "its agent was deleted")
            cursor = page.next_cursor
            if cursor is None:
                return

    async def send(
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
        """Send a message to an agent, in the name of another one (from_) or of none. It is delivered when it is due, unless it
        has expired: to a job that is started, as the agent's intake says. When this returns, it is committed.

        An agent that a handler of this app is for (`app.agent`), or for which you give a kind, is created by its first message.
        delay, expires_in: from now, seconds or text. idempotency_key: messages to one agent with the same one are one.
        session: of the job that gets it. causation_id: what caused it.
        Raises AgentNotFound, AgentPaused, AgentBusy, IdempotencyConflict, NotJson, TooLarge (over 1,000,000 bytes),
        NegativeDelay, InvalidInput. If it raises, nothing was sent.
        """
        message = check_message(
            to,
            payload,
            channel=channel,
            session=session,
            delay=delay,
            expires_in=expires_in,
            idempotency_key=idempotency_key,
            causation_id=causation_id,
        )
        return await self._send(message, from_, kind, start=False)

    async def message(
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
        """Send a message that starts a job by itself, whatever the agent's intake: its goal is what the message says, its payload
        the message. Returns a handle of that job. The rest is as for `send`, which says what it raises."""
        message = check_message(
            agent_id, payload, session=session, idempotency_key=idempotency_key, causation_id=causation_id
        )
        sent = await self._send(message, from_, kind, start=True)
        if sent.job_id is None:
            raise IdempotencyConflict(
                f"the message with the idempotency key '{idempotency_key}' was sent before, and has no job",
                hint="use another key",
            )
        return Jobs(self._scope).handle(sent.job_id)

    async def inbox(
        self, agent_id: str, *, pending: bool = False, limit: int = 50, cursor: str | None = None
    ) -> Page[Message]:
        """The messages to an agent, newest first; pending: only those that no job has got yet. They stay as they are.
        Raises AgentNotFound, InvalidInput."""
        return await self._messages(agent_id, "inbox", pending=pending, limit=limit, cursor=cursor)

    async def outbox(
        self, agent_id: str, *, pending: bool = False, limit: int = 50, cursor: str | None = None
    ) -> Page[Message]:
        """The messages from an agent, newest first. Raises AgentNotFound, InvalidInput."""
        return await self._messages(agent_id, "outbox", pending=pending, limit=limit, cursor=cursor)

    async def _messages(
        self, agent_id: str, box: Literal["inbox", "outbox"], *, pending: bool, limit: int, cursor: str | None
    ) -> Page[Message]:
        agents = (await self._store()).agents
        found = await agents.list_messages(agent_id, box, pending=pending, limit=check_limit(limit), cursor=cursor)
        if not found.items and await agents.get_agent(agent_id) is None:
            raise agent_not_found(agent_id)
        return found

    async def _send(self, message: NewMessage, from_: str | None, kind: str | None, *, start: bool) -> Sent:
        to = message.to_agent_id
        assert to is not None
        known = self._scope.registry.agents.get(to) if kind is None else check_agent(to, kind=kind)
        agents = (await self._store()).agents
        sender = None if from_ is None else check_agent_id(from_)
        if sender is not None and await agents.get_agent(sender) is None:
            raise agent_not_found(sender)
        try:
            return await agents.send(message, from_agent_id=sender, start=start)
        except AgentNotFound:
            if known is None:
                raise
        await agents.create_agent(known)
        return await agents.send(message, from_agent_id=sender, start=start)


def _status(value: AgentStatus | str) -> AgentStatus:
    words: builtins.list[str] = [status.value for status in AgentStatus]
    if value not in words:
        raise InvalidInput(f"the status of an agent is {', '.join(words)}, got {value!r:.60}")
    return AgentStatus(value)
