"""Saving the state of a session, by the worker that holds a job of it."""

from __future__ import annotations

from perdure.model.agents import NewState, SessionState
from perdure.model.events import NewEvent
from perdure.model.jobs import Lease
from perdure.store.agent_rows import saved_note, state_of
from perdure.store.errors import agent_not_found, lease_lost, session_changed
from perdure.store.postgres.agents.locked_agent import lock_agent
from perdure.store.postgres.engine.codec import CODEC
from perdure.store.postgres.engine.database import Transaction
from perdure.store.postgres.engine.driver_errors import Restart
from perdure.store.postgres.engine.locked_job import is_live
from perdure.store.postgres.leases.record import Entry, write_entries


async def save_state(tx: Transaction, tenant_id: str, lease: Lease, new: NewState) -> int:
    """See `protocol.AgentStore.save_state`."""
    claim = await tx.row("lock_claim", job_id=lease.job_id)
    if claim is None or not is_live(claim, lease, tenant_id):
        raise lease_lost(lease)
    place = {"tenant_id": tenant_id, "agent_id": new.agent_id, "session_id": new.session_id}
    row = await tx.row("lock_state", **place)
    version: int = 0 if row is None else row["version"]
    if row is not None and (row["job_id"], row["save_key"], version) == (lease.job_id, new.key, new.expected + 1):
        return version  # the answer of the first time was lost
    if version != new.expected:
        raise session_changed(new, version)
    values = {**place, "state": new.state, "job_id": lease.job_id, "key": new.key}
    if row is not None:
        await tx.rows("change_state", **values)
    elif await tx.row("insert_state", **values) is None:
        raise Restart("another job saved meanwhile")
    [result] = await write_entries(tx.rows, [Entry(tenant_id, lease, [NewEvent("session_saved", saved_note(new))], [])])
    if isinstance(result, Exception):
        raise result
    return version + 1


async def set_state(tx: Transaction, tenant_id: str, new: NewState, *, any_version: bool) -> SessionState:
    """See `protocol.AgentStore.set_state`."""
    if await lock_agent(tx, tenant_id, new.agent_id) is None:
        raise agent_not_found(new.agent_id)
    place = {"tenant_id": tenant_id, "agent_id": new.agent_id, "session_id": new.session_id}
    row = await tx.row("lock_state", **place)
    if row is None or row["save_key"] != new.key:  # else the answer of the first time was lost
        version: int = 0 if row is None else row["version"]
        if version != new.expected and not any_version:
            raise session_changed(new, version, by_client=True)
        values = {**place, "state": new.state, "job_id": None, "key": new.key}
        if row is not None:
            await tx.rows("change_state", **values)
        elif await tx.row("insert_state", **values) is None:
            raise Restart("another one saved meanwhile")
    saved = await tx.row("read_state", **place)
    assert saved is not None  # just written
    return state_of(saved, CODEC)
