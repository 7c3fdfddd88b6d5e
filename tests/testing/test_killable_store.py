"""The store of a worker that a test can kill: which calls pass, which are cut off, and which are refused."""

import inspect
from typing import Any, cast

import pytest

from perdure.observe.observed_store import ROLES, observed
from perdure.store.open import open_store
from perdure.store.protocol import Store
from perdure.testing import store_reads
from perdure.testing.attempt_monitor import AttemptMonitor
from perdure.testing.clock import ManualClock
from perdure.testing.killable_store import KillableStore

CUT_OFF = {
    "leases": {
        "release_held",
        "recheck_held",
        "claim",
        "expire",
        "finish",
        "finish_many",
        "heartbeat",
        "reap",
        "record",
        "set_waiting",
    },
    "approvals": {"replace_token", "request_approval"},
    "workers": {"beat_worker", "register_worker"},
    "agents": {"create_agent", "deliver", "save_state"},
    "children": {"forget_cancelled"},
    "limits": {"fold_budgets", "reserve_budget", "say_rate"},
    "jobs": {"cancel"},
    "accounts": {"take_account", "park_account", "note_probe"},
    "files": {"add_outputs", "keep"},
    "schedules": {"due_schedules"},
    "signals": {"take_signals"},
    "tool_runs": {"append_output"},
    "documents": {"change_documents"},
    "memories": {"change_memories", "index_vectors"},
}
"""Writes of a worker: a killed one makes none."""

REFUSED = {
    "schema": {"kinds", "migrate", "other_tables"},
    "jobs": {
        "append",
        "enqueue",
        "enqueue_batch",
        "enqueue_many",
        "enqueue_many_recorded",
        "change_jobs",
        "enqueue_recorded",
        "prepare_enqueue",
        "rerun_jobs",
        "retry_now",
    },
    "approvals": {"add_rule", "decide", "revoke_rule"},
    "workers": {"command_worker"},
    "agents": {"change_agent", "delete_agent", "send", "set_state"},
    "accounts": {"add_account", "change_account", "remove_account"},
    "files": {"add_inputs", "drop_inputs", "forget_contents"},
    "limits": {"set_budget", "set_limit", "set_rate", "unset_budget", "unset_limit"},
    "memories": {"pin_memory"},
    "signals": {"send_agent_signal", "send_signal"},
    "schedules": {"fire", "miss", "pause_schedule", "put_schedule", "remove_schedule", "resume_schedule", "trigger"},
    "queues": {"pause_queue", "resume_queue"},
    "retention": {"forget_messages", "forget_workers", "lead", "prune"},
    "checks": {"blocked_by", "check", "repair"},
}
"""Calls that no worker of a test makes."""


def calls_of(role: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(role, inspect.isfunction) if not name.startswith("_")}


@pytest.mark.parametrize(("name", "role"), ROLES)
async def test_every_call_of_a_role_is_a_listed_read_or_cut_off_or_refused(name: str, role: type) -> None:
    clock = ManualClock()
    store = await open_store("memory:", clock=clock)
    killable = KillableStore(store, AttemptMonitor(clock, {}), None, on_kill=lambda: None)
    reads = set(store_reads.READS.get(name, ()))
    cut_off, refused = CUT_OFF.get(name, set()), REFUSED.get(name, set())
    assert reads | cut_off | refused == calls_of(role), "say in one of the three lists what a new call is"
    assert len(reads) + len(cut_off) + len(refused) == len(calls_of(role)), "a call is in two lists"
    calls = getattr(killable, name)
    assert {call for call in vars(type(calls)) if not call.startswith("_")} == cut_off
    for call in reads:
        assert getattr(calls, call) == getattr(getattr(store, name), call)
    for call in refused | {"a_call_to_come"}:
        with pytest.raises(NotImplementedError, match=rf"does not know {name}\.{call}$"):
            getattr(calls, call)
    await store.close()


class NewerStore:
    """A store whose leases have a call that the protocol lacks."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.leases = NewerLeases(store.leases)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class NewerLeases(NewerStore):
    def __init__(self, leases: Any) -> None:
        self._store = leases

    async def a_call_to_come(self) -> None:
        """Not in the protocol."""


async def test_an_observed_store_passes_on_the_calls_of_the_protocol_alone() -> None:
    store = await open_store("memory:")
    newer = observed(cast("Store", NewerStore(store)), lambda: None)
    for name, role in ROLES:
        for call in calls_of(role):
            assert callable(getattr(getattr(newer, name), call))
    with pytest.raises(AttributeError, match="a_call_to_come"):
        cast("Any", newer.leases).a_call_to_come()
    with pytest.raises(AttributeError, match="a_role_to_come"):
        cast("Any", newer).a_role_to_come.call()
    await store.close()
