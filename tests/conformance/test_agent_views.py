"""The views of agents' messages and signals have the columns of the design document, in its order and by its names."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from perdure.model.effects import send_message
from perdure.model.ids import uuid7
from perdure.model.messages import NewMessage
from perdure.store.protocol import Store
from tests.conformance.sql_shell import Shell
from tests.conformance.support import claim, enqueue, event, near
from tests.conformance.test_agent_signals import job_of
from tests.conformance.test_agent_signals import send as send_signal
from tests.conformance.test_agents import agent, message

INBOX = "id to_agent_id from_agent_id channel payload created_at delivered_at consumed_by_job_id consumed_at tenant_id"
OUTBOX = "id from_agent_id to_agent_id channel payload created_at job_id tenant_id"
SIGNALS = "id agent_id correlation_key payload created_at consumed_by_job_id tenant_id"


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """Ids as UUID, payloads taken apart, times as datetime, whatever the database gives."""
    read: dict[str, Any] = {}
    for name, value in row.items():
        if value is None:
            read[name] = None
        elif name == "id" or name.endswith("job_id"):
            read[name] = UUID(str(value))
        elif name == "payload":
            read[name] = json.loads(value)
        elif name.endswith("_at"):
            read[name] = value if isinstance(value, datetime) else datetime.fromtimestamp(value / 1e6, UTC)
        else:
            read[name] = value
    return read


async def rows(shell: Shell, view: str, columns: str) -> list[dict[str, Any]]:
    found = await shell.run(f"select * from {view} order by id")
    assert {" ".join(row) for row in found} == {columns}
    return [plain(row) for row in found]


async def test_inbox(file_store: Store, shell: Shell) -> None:
    store = file_store
    await agent(store, intake="inbox")
    sent = await store.agents.send(message(payload='{"n": 1}', channel="news"))
    delayed = await store.agents.send(message(delay=3600.0))
    now = await store.now()
    first, second = await rows(shell, "agent_inbox", INBOX)
    times = [first.pop(name) for name in ("created_at", "delivered_at", "consumed_at")]
    assert all(near(time, now, within=20) for time in times)
    assert first == {
        "id": sent.id,
        "to_agent_id": "ann",
        "from_agent_id": None,
        "channel": "news",
        "payload": {"n": 1},
        "consumed_by_job_id": sent.job_id,
        "tenant_id": "default",
    }
    assert sent.job_id is not None
    assert second["id"] == delayed.id
    assert [second[name] for name in ("delivered_at", "consumed_by_job_id", "consumed_at")] == [None] * 3


async def test_outbox_and_its_other_name(file_store: Store, shell: Shell) -> None:
    store = file_store
    await agent(store)
    await agent(store, id="bob")
    outside = await store.agents.send(message("bob"), from_agent_id="ann")
    await store.agents.send(message("bob"))  # of no agent
    job = await claim(store, await enqueue(store, agent_id="ann"))
    inside = NewMessage(uuid7(), "bob", "[1]", "news")
    await store.leases.record(job.lease, [event("message_sent")], effects=[send_message(inside)])
    first, second = await rows(shell, "agent_outbox", OUTBOX)
    assert (first["id"], first["from_agent_id"], first["job_id"]) == (outside.id, "ann", None)
    assert near(second.pop("created_at"), await store.now(), within=20)
    assert second == {
        "id": inside.id,
        "from_agent_id": "ann",
        "to_agent_id": "bob",
        "channel": "news",
        "payload": [1],
        "job_id": job.id,
        "tenant_id": "default",
    }
    assert [row["id"] for row in await rows(shell, "agent_message_sends", OUTBOX)] == [outside.id, inside.id]


async def test_signals(file_store: Store, shell: Shell) -> None:
    store = file_store
    await agent(store)
    taken = await send_signal(store, "paid", '{"n": 1}')
    job = await claim(store, await job_of(store))
    waits = await send_signal(store)
    await send_signal(store, expires_in=0)
    first, second = await rows(shell, "agent_pending_signals", SIGNALS)
    assert near(first.pop("created_at"), await store.now(), within=20)
    assert first == {
        "id": taken.id,
        "agent_id": "ann",
        "correlation_key": "paid",
        "payload": {"n": 1},
        "consumed_by_job_id": job.id,
        "tenant_id": "default",
    }
    assert (second["id"], second["consumed_by_job_id"]) == (waits.id, None)
