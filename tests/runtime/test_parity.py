"""The blocking context and the blocking client have every method and parameter of the async ones."""

from collections.abc import Mapping

import pytest

from perdure import sync
from perdure.runtime import handle
from perdure.runtime.client.accounts import Accounts
from perdure.runtime.client.approvals import Approvals
from perdure.runtime.client.client import Client
from perdure.runtime.client.database import Database
from perdure.runtime.client.jobs import Jobs
from perdure.runtime.client.limits import Limits
from perdure.runtime.client.memories import Memories
from perdure.runtime.client.queues import Queues
from perdure.runtime.client.schedules import Schedules
from perdure.runtime.client.tasks import Tasks
from perdure.runtime.client.workers import Workers
from perdure.runtime.context.blocking import BlockingContext
from perdure.runtime.context.context import JobContext
from perdure.runtime.context.job_memory import BlockingMemory, JobMemory
from perdure.runtime.context.session import BlockingSession, Session
from perdure.runtime.context.working_memory import BlockingMessages, BlockingVariables, Messages, Variables
from perdure.sync import accounts, approvals, database, jobs, limits, memories, queues, schedules, tasks, workers
from tests.parity import differences


def test_a_plain_handler_has_every_call_of_an_async_one() -> None:
    names = {
        "JobContext": "BlockingContext",
        "Session": "BlockingSession",
        "JobMemory": "BlockingMemory",
        "Messages": "BlockingMessages",
        "Variables": "BlockingVariables",
        "ToolOutputStash": "BlockingStash",
    }
    assert differences(JobContext, BlockingContext, {}, names=names) == []
    assert differences(Session, BlockingSession, {}) == []
    assert differences(Messages, BlockingMessages, {}) == []
    assert differences(Variables, BlockingVariables, {}) == []


CLIENTS: list[tuple[type, type, Mapping[str, str]]] = [
    (
        Client,
        sync.Client,
        {
            "open": "a blocking client opens the store at its first call, or in `with`",
            "close": "an async client is closed with its App; a blocking one also stops its thread",
        },
    ),
    (
        Jobs,
        jobs.Jobs,
        {
            "prepare_in_transaction": "what the blocking `enqueue_many(tx=)` is made of: it runs in the caller's thread",
            "prepared": "what `prepare_in_transaction` is made of",
            "enqueue_prepared": "what `Tasks.enqueue` is made of",
            "rate_of": "what `ctx.spawn` and `Schedules.add` ask",
        },
    ),
    (Approvals, approvals.Approvals, {}),
    (Limits, limits.Limits, {}),
    (Schedules, schedules.Schedules, {}),
    (Queues, queues.Queues, {}),
    (Memories, memories.Memories, {}),
    (JobMemory, BlockingMemory, {"tools": "async functions for an async loop"}),
    (Workers, workers.Workers, {}),
    (Tasks, tasks.Tasks, {}),
    (Accounts, accounts.Accounts, {}),
    (
        Database,
        database.Database,
        {"fsck": "an Fsck is an async iterator with a counter; the blocking one iterates alone"},
    ),
    (handle.Handle, sync.Handle, {}),
]


@pytest.mark.parametrize(
    ("asynchronous", "blocking", "exceptions"), CLIENTS, ids=lambda value: getattr(value, "__name__", "")
)
def test_the_blocking_client_has_every_call_of_the_async_one(
    asynchronous: type, blocking: type, exceptions: Mapping[str, str]
) -> None:
    assert "\n".join(differences(asynchronous, blocking, exceptions)) == ""


class Async:
    @property
    def id(self) -> int:
        return 1

    async def same(self, a: int, *, b: str = "x") -> str:
        return b

    async def default(self, a: int = 1) -> None: ...

    async def kind(self, a: int) -> None: ...

    async def annotation(self, a: int) -> None: ...

    async def returned(self) -> int:
        return 1

    async def missing(self) -> None: ...

    async def unlike(self) -> None: ...


class Blocking:
    @property
    def id(self) -> int:
        return 1

    def same(self, a: int, *, b: str = "x") -> str:
        return b

    def default(self, a: int = 2) -> None: ...

    def kind(self, *, a: int) -> None: ...

    def annotation(self, a: str) -> None: ...

    def returned(self) -> str:
        return ""

    def added(self) -> None: ...

    def unlike(self, a: int) -> None: ...


def test_every_difference_is_found() -> None:
    found = differences(Async, Blocking, {"unlike": "as it is meant to be", "same": "a reason that is no longer true"})
    assert [line.split()[0] for line in found] == [
        "added", "annotation", "default", "kind", "missing", "returned", "same",
    ]  # fmt: skip
