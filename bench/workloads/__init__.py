"""What is measured, through the public API: App, handlers, ctx.step, Worker; the full audit is on. Each workload runs once
in a fresh database, checks what it left there, and returns its figures by name."""

from bench.workloads.common import Workload
from bench.workloads.drain import count_every, drain, drain_2, drain_4
from bench.workloads.endurance import memory, sustained
from bench.workloads.enqueue import enqueue_1, enqueue_32, enqueue_bulk, write_4
from bench.workloads.fan_out import fan_out
from bench.workloads.full_mailboxes import full_mailboxes
from bench.workloads.latency import claim_10, heartbeat_10k, pickup_at
from bench.workloads.limits import claim_keys
from bench.workloads.memories import long_term_memory
from bench.workloads.messages import messages
from bench.workloads.peer_drain import drain_with_graphile
from bench.workloads.steps import short_steps_of, steps_of
from bench.workloads.tasks import task_latency, tasks_100
from bench.workloads.wake_up import wake_up

WORKLOADS: dict[str, Workload] = {
    "enqueue_bulk": enqueue_bulk,
    "enqueue_1": enqueue_1,
    "enqueue_32": enqueue_32,
    "drain": drain,
    "drain_2": drain_2,
    "drain_4": drain_4,
    "graphile_1": drain_with_graphile(1),
    "graphile_2": drain_with_graphile(2),
    "count_beside_drain": count_every(0.01),
    "write_4": write_4,
    "steps_1": steps_of(1, 1500),
    "steps_32": steps_of(32, 300),
    "steps_128": steps_of(128, 150),
    "short_steps_1": short_steps_of(1),
    "short_steps_8": short_steps_of(8),
    "short_steps_32": short_steps_of(32),
    "pickup_1": pickup_at(1),
    "pickup_100": pickup_at(100),
    "pickup_1000": pickup_at(1000),
    "claim_10": claim_10,
    "claim_keys": claim_keys,
    "fan_out": fan_out,
    "full_mailboxes": full_mailboxes,
    "messages": messages,
    "wake_up": wake_up,
    "heartbeat_10k": heartbeat_10k,
    "memory": memory,
    "long_term_memory": long_term_memory,
    "task_latency": task_latency,
    "tasks_100": tasks_100,
    "sustained": sustained,
}
POSTGRES_ONLY = frozenset({"graphile_1", "graphile_2"})
SQLITE_ONLY = frozenset({"write_4"})
"""Only a file that several processes share raises the question."""
ONCE = frozenset(
    {
        "pickup_1",
        "claim_10",
        "claim_keys",
        "fan_out",
        "full_mailboxes",
        "messages",
        "wake_up",
        "heartbeat_10k",
        "memory",
        "long_term_memory",
        "task_latency",
        "tasks_100",
        "sustained",
    }
)
"""Too long to be repeated, or many samples in themselves: run in the first round only."""
