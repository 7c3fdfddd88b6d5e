"""Saving the state of a session, by the worker that holds a job of it."""

from __future__ import annotations

import json
import sqlite3
from typing import cast

from perdure.model.agents import NewState, SessionState
from perdure.model.jobs import Lease
from perdure.store.agent_rows import saved_note, state_of
from perdure.store.errors import agent_not_found, lease_lost, session_changed
from perdure.store.rows import Row
from perdure.store.sqlite.agents.locked_agent import lock_agent
from perdure.store.sqlite.engine.codec import CODEC
from perdure.store.sqlite.engine.locked_job import LockedJob
from perdure.store.sqlite.engine.statements import SQL
from perdure.store.sqlite.leases.lease_check import held_claim


def save_state(conn: sqlite3.Connection, now: int, tenant_id: str, lease: Lease, new: NewState) -> int:
    """See `protocol.AgentStore.save_state`."""
    if held_claim(conn, now, tenant_id, lease) is None:
        raise lease_lost(lease)
    job_id = str(lease.job_id)
    place = {"tenant_id": tenant_id, "agent_id": new.agent_id, "session_id": new.session_id}
    row = conn.execute(SQL["lock_state"], place).fetchone()
    version: int = 0 if row is None else row["version"]
    if row is not None and (row["job_id"], row["save_key"], version) == (job_id, new.key, new.expected + 1):
        return version  # the answer of the first time was lost
    if version != new.expected:
        raise session_changed(new, version)
    values = {**place, "state": new.state, "job_id": job_id, "key": new.key, "now": now}
    conn.execute(SQL["insert_state" if row is None else "change_state"], values)
    job = LockedJob(conn, job_id, tenant_id)
    job.write_event(conn, now, "session_saved", saved_note(new))
    conn.execute(SQL["advance_heads"], {"heads": json.dumps({job_id: job.head}), "now": now})
    return version + 1


def set_state(conn: sqlite3.Connection, now: int, tenant_id: str, new: NewState, *, any_version: bool) -> SessionState:
    """See `protocol.AgentStore.set_state`."""
    if lock_agent(conn, tenant_id, new.agent_id) is None:
        raise agent_not_found(new.agent_id)
    place = {"tenant_id": tenant_id, "agent_id": new.agent_id, "session_id": new.session_id}
    row = conn.execute(SQL["lock_state"], place).fetchone()
    if row is None or row["save_key"] != new.key:  # else the answer of the first time was lost
        version: int = 0 if row is None else row["version"]
        if version != new.expected and not any_version:
            raise session_changed(new, version, by_client=True)
        values = {**place, "state": new.state, "job_id": None, "key": new.key, "now": now}
        conn.execute(SQL["insert_state" if row is None else "change_state"], values)
    return state_of(cast("Row", conn.execute(SQL["read_state"], place).fetchone()), CODEC)
