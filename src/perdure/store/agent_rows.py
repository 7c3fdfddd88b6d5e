"""The rows of agents and their messages as records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from perdure.model.agents import AgentInstance, AgentStatus, JobAgent, NewAgent, NewState, SessionState
from perdure.model.messages import Message
from perdure.model.timing import Backoff
from perdure.store.errors import bad_cursor
from perdure.store.rows import Codec, Row

DELETING = ("refuse_messages", "end_agent_signals", "delete_states", "delete_deliveries", "delete_agent")
"""The statements that delete an agent, in order, under its lock."""


def agent_of(row: Row, codec: Codec, *, id: str = "id") -> AgentInstance:
    """A row of `agent_instances`, or of the view `agents`. id: the name of the column of its id."""

    def time(name: str) -> datetime | None:
        return None if row[name] is None else codec.time(row[name])

    names = row.keys()  # a row of sqlite3 has no other test for a column
    status = row["status"] if "status" in names else None
    return AgentInstance(
        id=row[id],
        tenant_id=row["tenant_id"],
        kind=row["kind"],
        name=row["name"],
        default_session_id=row["default_session_id"],
        meta=json.loads(row["meta"]),
        queue=row["queue"],
        intake=row["intake"],
        batch=row["batch"],
        on_busy=row["on_busy"],
        max_parallel_jobs=row["max_parallel_jobs"],
        max_retries=row["max_retries"],
        backoff=backoff_of(row["backoff"]),
        paused_at=time("paused_at"),
        created_at=codec.time(row["created_at"]),
        updated_at=codec.time(row["updated_at"]),
        status=None if status is None else AgentStatus(status),
        waiting_messages=row["waiting_messages"] if "waiting_messages" in names else None,
    )


def job_agent_of(row: Row, codec: Codec) -> JobAgent:
    """A row of `agent_of_job`."""
    agent = None if row["id"] is None else agent_of(row, codec)
    return JobAgent(row["agent_id"], row["session_id"], agent, bool(row["has_signals"]))


def message_of(row: Row, codec: Codec) -> Message:
    """A row of `agent_messages`."""

    def uuid(name: str) -> Any:
        return None if row[name] is None else codec.uuid(row[name])

    def time(name: str) -> datetime | None:
        return None if row[name] is None else codec.time(row[name])

    return Message(
        id=codec.uuid(row["id"]),
        to_agent_id=row["to_agent_id"],
        from_agent_id=row["from_agent_id"],
        channel=row["channel"],
        payload=json.loads(row["payload"]),
        created_at=codec.time(row["created_at"]),
        due_at=codec.time(row["due_at"]),
        session_id=row["session_id"],
        expires_at=time("expires_at"),
        consumed_by_job_id=uuid("consumed_by_job_id"),
        consumed_at=time("consumed_at"),
        refused=row["refused"],
        causation_id=row["causation_id"],
        idempotency_key=row["idempotency_key"],
        job_id=uuid("job_id"),
        reply_to=uuid("reply_to"),
        reply_channel=row["reply_channel"],
    )


def message_note(message: Message, wait_key: str) -> str:
    """The payload of `agent_message`, as JSON. wait_key: of the wait which has taken it."""
    note = {
        "key": wait_key,
        "message": str(message.id),
        "from": message.from_agent_id,
        "channel": message.channel,
    }
    return json.dumps(note, ensure_ascii=False)


def saved_note(new: NewState) -> str:
    """The payload of `session_saved`, as JSON."""
    return json.dumps({"key": new.key, "version": new.expected + 1, "session": new.session_id}, ensure_ascii=False)


def state_of(row: Row, codec: Codec) -> SessionState:
    """A row of `agent_states`."""
    return SessionState(
        agent_id=row["agent_id"],
        session_id=row["session_id"] or None,
        state=json.loads(row["state"]),
        version=row["version"],
        updated_at=codec.time(row["updated_at"]),
        job_id=None if row["job_id"] is None else codec.uuid(row["job_id"]),
    )


def session_cursor(last: SessionState) -> str:
    """The cursor of a page that ends with this session, whose id may be empty."""
    return f"={last.session_id or ''}"


def session_after(cursor: str | None) -> str | None:
    """The session that a page ended with. Raises InvalidInput."""
    if cursor is None:
        return None
    if not cursor.startswith("="):
        raise bad_cursor(cursor)
    return cursor[1:]


def backoff_text(backoff: Backoff | None) -> str | None:
    """A backoff as it is stored."""
    return None if backoff is None else json.dumps(asdict(backoff))


def backoff_of(text: str | None) -> Backoff | None:
    """What `backoff_text` wrote."""
    return None if text is None else Backoff(**json.loads(text))


def changed_agent(row: Row, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The values of `change_agent`: a locked row with what is to be changed of it."""
    kept = {name: row[name] for name in NewAgent._fields}
    paused = changes.get("paused", row["paused_at"] is not None)
    return {**kept, **{name: value for name, value in changes.items() if name != "paused"}, "paused": paused}
