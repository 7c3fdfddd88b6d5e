"""Any sequence of claims, crashes, cancels, changes of limits and parks of accounts.

Never more live leases than the maximum, the view counts the leases that there are, and no job is forgotten.
"""

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from perdure.model.account_choice import TaskKind
from perdure.model.jobs import ClaimedJob, Outcome
from perdure.model.tooling import Account
from perdure.store.open import open_store
from perdure.store.protocol import Store
from perdure.store.protocol.leases import KindLimit
from tests.conformance.support import S, enqueue, outcome, run_out

T = TypeVar("T")
KEYS = {"a": 1, "b": 2}
OF_HANDLER = 2
ACCOUNTS = {"x": 1, "y": 2}
KINDS = {"echo": 9, "write": 9, "cli.codex": 9}
LIMITS = {"write": KindLimit("write", OF_HANDLER), "cli.codex": KindLimit(task=TaskKind("codex"))}
QUEUE = "default"
picks = st.integers(0, 1000)
tenants = itertools.count(1)


class SlotMachine(RuleBasedStateMachine):
    """`url` is set by the test. A tenant of its own keeps each history apart from those before it in one database."""

    url = "memory:"

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.store: Store = self.run(open_store(self.url, tenant=f"slots{next(tenants)}"))
        if self.url == "memory:":
            self.run(self.store.schema.migrate())
        for id, most in ACCOUNTS.items():
            self.run(self.store.accounts.add_account(Account(id, "codex", max_concurrency=most)))
        self.jobs: list[UUID] = []
        self.leases: dict[UUID, ClaimedJob] = {}
        self.most = {**KEYS, "write": OF_HANDLER} | {f"account:{id}": most for id, most in ACCOUNTS.items()}
        self.over: Counter[str] = Counter()
        """How many leases of a key there were when its maximum became lower: they drain."""
        self.closed: set[str] = set()
        """Accounts that are disabled."""
        self.parked: set[str] = set()
        """Accounts under which no task may start until the end of the history."""

    def teardown(self) -> None:
        self.run(self.drain())
        self.run(self.store.close())
        self.loop.close()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(call)

    def used(self) -> Counter[str]:
        """The slots in use, by the leases that this history has."""
        return Counter(slot for job in self.leases.values() for slot in slots_of(job))

    # What may happen ------------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.jobs) < 30)
    @rule(
        kind=st.sampled_from([*KINDS]),
        key=st.sampled_from([None, *KEYS]),
        account=st.sampled_from([None, *ACCOUNTS]),
        priority=st.integers(4, 6),
        number=st.integers(1, 4),
    )
    def enqueue(self, kind: str, key: str | None, account: str | None, priority: int, number: int) -> None:
        more = {} if key is None else {"concurrency_key": key, "max_concurrent": KEYS[key]}
        payload = json.dumps({"prompt": "x"} if account is None else {"prompt": "x", "account": account})
        for _ in range(number):
            job = enqueue(
                self.store, queue=QUEUE, kind=kind, priority=priority, payload=payload, max_retries=50, **more
            )
            self.jobs.append(self.run(job))

    @rule(limit=st.integers(1, 6), released=st.booleans(), served=st.sampled_from([None, ("x",), ("y",)]))
    def claim(self, limit: int, released: bool, served: tuple[str, ...] | None) -> None:
        self.run(self.take(limit, released=released, served=served))

    @precondition(lambda self: self.leases)
    @rule(n=picks, how=st.sampled_from([S.COMPLETED, S.FAILED, S.RETRY, S.PARKED]))
    def finish(self, n: int, how: S) -> None:
        job = self.leases.pop(sorted(self.leases)[n % len(self.leases)])
        changes = {"delay": 0.0} if how is S.RETRY else {}
        self.run(self.store.leases.finish(job.lease, Outcome(how) if how is S.PARKED else outcome(how, **changes)))

    @precondition(lambda self: self.leases)
    @rule(n=picks, number=st.integers(1, 3), started=st.booleans())
    def crash(self, n: int, number: int, started: bool) -> None:
        lost = [self.leases.pop(id) for id in sorted(self.leases)[n % len(self.leases) :][:number]]
        self.run(run_out(self.store, *(job.lease for job in lost), started=started))
        self.run(self.store.leases.reap(worker_id="other"))

    @precondition(lambda self: self.jobs)
    @rule(n=picks)
    def cancel(self, n: int) -> None:
        id = self.jobs[n % len(self.jobs)]
        if not self.run(self.store.jobs.get_job(id)).status.terminal:
            self.run(self.store.jobs.cancel(id, note="{}", force=True))
            self.leases.pop(id, None)

    @rule(key=st.sampled_from([*KEYS, "write"]), most=st.none() | st.integers(0, 4))
    def limit(self, key: str, most: int | None) -> None:
        if most is None:
            self.run(self.store.limits.unset_limit(key))
        else:
            self.run(self.store.limits.set_limit(key, most, by="ann"))
        self.most[key] = {**KEYS, "write": OF_HANDLER}[key] if most is None else most
        self.over[key] = self.used()[key]

    @rule(id=st.sampled_from([*ACCOUNTS]), most=st.integers(0, 3), enabled=st.booleans())
    def change_account(self, id: str, most: int, enabled: bool) -> None:
        self.run(self.store.accounts.change_account(id, max_concurrency=most, enabled=enabled))
        self.most[f"account:{id}"] = most
        self.over[f"account:{id}"] = self.used()[f"account:{id}"]
        self.closed = self.closed - {id} if enabled else self.closed | {id}

    @rule(id=st.sampled_from([*ACCOUNTS]))
    def park(self, id: str) -> None:
        """For longer than the history takes."""
        self.run(self.store.accounts.park_account(id, 3600, "usage limit"))
        self.parked.add(id)

    # What holds ------------------------------------------------------------------------------------------------------------

    @invariant()
    def never_more_than_the_maximum_hold_slots(self) -> None:
        for slot, number in self.used().items():
            self.over[slot] = min(self.over[slot], number)
            assert number <= max(self.most[slot], self.over[slot]), (slot, number)

    @invariant()
    def the_view_counts_the_leases(self) -> None:
        listed = {limit.key: limit.in_use for limit in self.run(self.store.limits.list_limits()) if limit.in_use}
        assert listed == dict(self.used())

    async def take(self, limit: int, *, released: bool = True, served: tuple[str, ...] | None = None) -> int:
        """One claim; no task gets an account that is disabled, parked or not served."""
        if released:
            await self.store.leases.release_held()
        limits = {**LIMITS, "cli.codex": KindLimit(task=TaskKind("codex", served))}
        got = await self.store.leases.claim(worker_id="w", queue=QUEUE, kinds=KINDS, limit=limit, ttl=60, limits=limits)
        assert len(got) <= limit
        for job in got:
            assert job.id not in self.leases
            assert (job.account is not None) == (job.kind == "cli.codex")
            assert job.account not in self.closed | self.parked
            assert served is None or job.account is None or job.account in served
            self.leases[job.id] = job
        return len(got)

    async def drain(self) -> None:
        """All limits are open and everything ends well: so nothing was forgotten. Tasks of parked accounts move to another."""
        for key in (*KEYS, "write"):
            await self.store.limits.unset_limit(key)
        for account in ACCOUNTS:
            await self.store.accounts.remove_account(account)
            await self.store.accounts.add_account(Account(account, "codex", max_concurrency=1))
        self.closed.clear()
        self.parked.clear()
        for id in self.jobs:  # what was lost together with others is due later
            if (await self.store.jobs.get_job(id)).status is S.RETRY:
                await self.store.jobs.retry_now(id, note="{}")
        while True:
            released = await self.store.leases.release_held()
            got = await self.take(6)
            if not self.leases and not released and not got:
                break
            for job in list(self.leases.values()):
                await self.store.leases.finish(self.leases.pop(job.id).lease, outcome(S.COMPLETED))
        left = [id for id in self.jobs if not (await self.store.jobs.get_job(id)).status.terminal]
        assert left == []


def slots_of(job: ClaimedJob) -> list[str]:
    """The slots that a lease holds."""
    return [slot for slot in (job.concurrency_key, job.account and f"account:{job.account}") if slot]


async def prepare(url: str) -> None:
    store = await open_store(url)
    await store.schema.migrate()
    await store.close()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def examples(request: pytest.FixtureRequest, fresh_store_url: Callable[[str], str]) -> Iterator[int]:
    SlotMachine.url = fresh_store_url(request.param)
    if request.param != "memory":
        asyncio.run(prepare(SlotMachine.url))
    yield {"memory": 60, "sqlite": 20, "postgres": 8}[request.param]
    SlotMachine.url = "memory:"


def test_any_history_keeps_to_the_maximum_and_forgets_no_job(examples: int) -> None:
    run_state_machine_as_test(
        SlotMachine,
        settings=settings(
            max_examples=examples, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
