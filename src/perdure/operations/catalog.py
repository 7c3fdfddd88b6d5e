"""Every operation, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from perdure.operations import (
    accounts,
    agents,
    approvals,
    bulk,
    control,
    database,
    diagnose,
    enqueue,
    export,
    follow,
    fsck,
    jobs,
    limits,
    memory,
    queues,
    schedules,
    signals,
    tasks,
    workers,
)
from perdure.operations.registry import REGISTERED, Operation

MODULES = (
    enqueue,
    jobs,
    follow,
    control,
    bulk,
    signals,
    export,
    approvals,
    limits,
    queues,
    memory,
    schedules,
    tasks,
    accounts,
    agents,
    workers,
    database,
    fsck,
    diagnose,
)

OPERATIONS: Mapping[str, Operation] = MappingProxyType(REGISTERED)
"""Every operation, by name."""
